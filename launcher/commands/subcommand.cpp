// Implementation of subcommand.hpp: parses the arguments, selects the subcommand, and implements `help`, `version` and
// `validate`. The other subcommands have their own files.
#include "launcher/commands/subcommand.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/check.hpp"
#include "common/base/error.hpp"
#include "common/base/split.hpp"
#include "common/config/parse_config.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/version_text.hpp"
#include "launcher/config_files/config_files.hpp"
#include "launcher/config_files/table_columns.hpp"
#include "launcher/custom_worker/custom_worker.hpp"
#include "launcher/hosts/agent_supervisor.hpp"
#include "launcher/hosts/hosts_command.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/parse_number.hpp"
#include "launcher/options/subcommand_names.hpp"
#include "launcher/scheduler_status/kubeflow_post.hpp"
#include "launcher/scheduler_status/slurm_comment_post.hpp"

namespace ddprun {
namespace {

bool has_option(const SubcommandSpec& spec, std::string_view name) {
  const std::vector<std::string_view> options = split(spec.options, ' ');
  return std::ranges::find(options, name) != options.end();
}

enum class OptionValue { kNone, kOptional, kRequired };

// Finds out from the usage text whether the option takes a value. The text shows the name of a value in capitals, and an
// optional value in brackets: "[--rank N]", "[--html [FILE]]".
OptionValue value_kind(const SubcommandSpec& spec, const std::string& option) {
  const std::size_t at = spec.arguments.find(option + " ");
  if (at == std::string_view::npos) return OptionValue::kNone;
  std::string_view value = spec.arguments.substr(at + option.size() + 1);
  const bool is_optional = value.starts_with('[');
  if (is_optional) value.remove_prefix(1);
  if (value.empty() || value.front() < 'A' || value.front() > 'Z') return OptionValue::kNone;
  return is_optional ? OptionValue::kOptional : OptionValue::kRequired;
}

}  // namespace

// ---- arguments ----

std::string usage_of(const SubcommandSpec& spec) {
  return "usage: ddprun " + std::string(spec.name) + (spec.arguments.empty() ? "" : " " + std::string(spec.arguments));
}

std::string help_of(const SubcommandSpec& spec) {
  std::string text = usage_of(spec) + "\n" + (spec.help.empty() ? sentence(spec.doc) + "\n" : std::string(spec.help));
  if (spec.arguments.starts_with("[JOB"))
    text += "JOB is the PID, run directory or title that `ddprun ps` shows. It may be omitted if only one job is running.\n";
  return text;
}

SubcommandArguments::SubcommandArguments(const SubcommandSpec& spec, std::span<const std::string> args) : spec_(spec) {
  if (spec.takes_command) {
    help_ = !args.empty() && (args.front() == "--help" || args.front() == "-h");
    words_.assign(args.begin(), args.end());
    return;
  }
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::size_t equals = args[i].starts_with("--") ? args[i].find('=') : std::string::npos;
    const std::string name = args[i].substr(0, equals);
    if (name == "--help" || name == "-h") {
      help_ = true;
      return;
    }
    const OptionValue kind = value_kind(spec, name);
    if (spec.starts_program && (args[i] == "--" || !name.starts_with("-"))) {
      words_.assign(args.begin() + static_cast<std::ptrdiff_t>(args[i] == "--" ? i + 1 : i), args.end());
      return;
    }
    if (!name.starts_with("-")) {
      words_.push_back(args[i]);
    } else if (!has_option(spec, name) || (equals != std::string::npos && kind == OptionValue::kNone)) {
      refuse("unexpected argument '" + args[i] + "'");
    } else if (equals != std::string::npos) {
      options_.emplace_back(name, args[i].substr(equals + 1));
    } else if (const bool is_last = i + 1 == args.size();
               kind == OptionValue::kNone || (kind == OptionValue::kOptional && (is_last || args[i + 1].starts_with("-")))) {
      options_.emplace_back(name, std::nullopt);
    } else {
      options_.emplace_back(name, is_last ? "" : args[++i]);
    }
  }
}

bool SubcommandArguments::has(std::string_view option) const {
  return count({&option, 1}) > 0;
}

int SubcommandArguments::count(std::span<const std::string_view> options) const {
  const auto is_counted = [&](const auto& given) { return std::ranges::find(options, given.first) != options.end(); };
  return static_cast<int>(std::ranges::count_if(options_, is_counted));
}

std::optional<std::string> SubcommandArguments::value(std::string_view option, std::string_view expected) const {
  const auto given = std::ranges::find(options_.rbegin(), options_.rend(), option, &GivenOption::first);
  if (given == options_.rend() || !given->second) return std::nullopt;
  if (given->second->empty()) refuse(std::string(option) + " needs " + std::string(expected));
  return given->second;
}

std::optional<int> SubcommandArguments::number(std::string_view option) const {
  if (!has(option)) return std::nullopt;
  const std::string text = value(option, "a whole number, 0 or more; found ''").value_or("");
  const auto number = parse_whole(text);
  if (!number || *number < 0 || *number > 1'000'000'000) {
    refuse(std::string(option) + " needs a whole number, 0 or more; found '" + text + "'");
  }
  return static_cast<int>(*number);
}

std::vector<std::string> SubcommandArguments::option_words(std::string_view except) const {
  std::vector<std::string> words;
  for (const auto& [name, value] : options_) {
    if (name != except) words.push_back(value ? name + "=" + *value : name);
  }
  return words;
}

void SubcommandArguments::refuse_words(std::size_t from) const {
  if (words_.size() > from) refuse("unexpected argument '" + words_[from] + "'");
}

// An empty argument is probably an unset shell variable, which must not select the default.
std::string SubcommandArguments::only_word(std::string_view name) const {
  refuse_words(1);
  if (words_.empty()) return {};
  if (words_[0].empty()) refuse(std::string(name) + " is empty");
  return words_[0];
}

void SubcommandArguments::refuse(const std::string& problem) const {
  throw UsageError(problem + "; " + usage());
}

void SubcommandArguments::refuse_both(std::string_view one, std::string_view other) const {
  if (has(one) && has(other)) refuse(std::string(one) + " and " + std::string(other) + " exclude each other");
}

// ---- subcommands ----

static_assert(kSubcommandFunctions.size() + 2 == kSubcommandTable.size(), "each subcommand but join and bench has a function");

std::optional<int> run_subcommand(std::span<const std::string> args) {
  if (args.empty()) return std::nullopt;
  if (args.front() == kPostStatusCommand && args.size() == 2) {  // started by an agent in a Kubeflow pod
    print(post_kubeflow_status(args.back()));
    return 0;
  }
  if (args.front() == kSetSlurmCommentCommand && args.size() == 3) {  // started by an agent in a Slurm job
    print(set_slurm_comment(args[1], args[2]));
    return 0;
  }
  if (args.front() == kSuperviseCommand && args.size() == 1) return supervise_agent_over_ssh();  // started by --hosts
  const auto function = std::ranges::find(kSubcommandFunctions, args.front(), &SubcommandFunction::name);
  if (function == kSubcommandFunctions.end()) return std::nullopt;
  const SubcommandSpec& spec = existing(find_subcommand(args.front()), "a subcommand is missing in kSubcommandTable");
  const SubcommandArguments arguments(spec, args.subspan(1));
  if (!arguments.help()) return function->run(arguments);
  print(help_of(spec));
  return 0;
}

int show_help(const SubcommandArguments& arguments) {
  const std::string name = arguments.only_word("SUBCOMMAND");
  if (name.empty()) {
    print(help_text(CalledAs::kDdprun));
    return 0;
  }
  const SubcommandSpec* const known = find_subcommand(name);
  if (known == nullptr) {
    std::string names;
    for (const SubcommandSpec& each : kSubcommandTable) names += (names.empty() ? "" : ", ") + std::string(each.name);
    arguments.refuse("unknown subcommand '" + name + "', expected one of " + names);
  }
  print(name == "join" ? join_help_text() : help_of(*known));
  return 0;
}

int show_version(const SubcommandArguments& arguments) {
  arguments.refuse_words();
  print(version_text());
  return 0;
}

int validate_config(const SubcommandArguments& arguments) {
  if (arguments.words().empty()) throw UsageError(arguments.usage());
  const std::string& file = arguments.words().front();
  std::optional<NamedWorker> worker;
  if (const auto named = arguments.value("--worker")) {
    worker = {*named, "flag --worker"};
  } else if (const auto variable = process_environment()("DDPRUN_WORKER")) {
    worker = {*variable, "environment DDPRUN_WORKER"};
  }
  for (const std::string_view ending : {".py", ".sh"}) {
    if (file.ends_with(ending))
      throw UsageError(file +
                       " is a script, but ddprun validate checks train.json files; to see how the script would be started, use "
                       "ddprun --dry-run " +
                       file);
  }
  std::vector<std::string> notes;
  bool custom_program = false;
  const std::vector<std::string> overrides(arguments.words().begin() + 1, arguments.words().end());
  const TrainConfig config = load_config(file, overrides, &notes, [&](const std::string& by_config) {
    const auto custom = find_custom_worker(worker, by_config, this_machine(), std::filesystem::current_path());
    custom_program = custom.has_value();
    return custom ? TaskConfig(custom->description.keys) : TaskConfig();
  });
  for (const std::string& note : notes) std::fprintf(stderr, "ddprun: warning: %s\n", note.c_str());
  print(to_json_text(config) + "\n");
  require_files(config, custom_program);
  if (!custom_program) std::fputs(table_columns_text(config).c_str(), stderr);
  std::fprintf(stderr, "ddprun: %s is valid, and all files that it names exist\n", file.c_str());
  return 0;
}

}  // namespace ddprun
