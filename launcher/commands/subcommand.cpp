// Implementation of subcommand.hpp: selects the subcommand, and implements `help`, `version` and `validate`. The others have
// their own files.
#include "launcher/commands/subcommand.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/version_text.hpp"
#include "launcher/config_files/config_files.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/subcommand_names.hpp"
#include "launcher/own_worker/own_worker.hpp"

namespace ddprun {

std::optional<int> run_subcommand(std::span<const std::string> args) {
  if (args.empty()) return std::nullopt;
  const std::string& name = args.front();
  const std::span<const std::string> rest = args.subspan(1);
  if (name == "validate") return validate_config(rest);
  if (name == "init") return init_project(rest);
  if (name == "report") return show_report(rest);
  if (name == "plot") return plot_runs(rest);
  if (name == "doctor") return examine_machine(rest);
  if (name == "token") return show_token(rest);
  if (name == "gpus") return show_gpus(rest);
  if (name == "ps") return list_jobs(rest);
  if (name == "status") return show_status(rest);
  if (name == "top") return watch_job(rest);
  if (name == "stop") return stop_job(rest);
  if (name == "logs") return show_logs(rest);
  if (name == "stacks") return show_stacks(rest);
  if (name == "attach") return attach_to_worker(rest);
  if (name == "link-torchrun") return link_torchrun(rest);
  if (name == "help") return show_help(rest);
  if (name == "version") return show_version(rest);
  return std::nullopt;
}

int show_help(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun help [SUBCOMMAND]";
  if (args.empty()) {
    print(help_text(CalledAs::kDdprun));
    return 0;
  }
  if (args.size() > 1) throw UsageError("'" + args[1] + "' is one too many; " + kUsage);
  const std::string& name = args.front();
  const auto known = std::find_if(kSubcommandTable.begin(), kSubcommandTable.end(),
                                  [&](const SubcommandSpec& each) { return each.name == name; });
  if (known == kSubcommandTable.end()) {
    std::string names;
    for (const SubcommandSpec& each : kSubcommandTable) names += (names.empty() ? "" : ", ") + std::string(each.name);
    throw UsageError("there is no subcommand '" + name + "', only " + names + "; " + kUsage);
  }
  if (name == "join") {
    print(join_help_text());
    return 0;
  }
  if (name == "help" || name == "version") {
    print("usage: ddprun " + name + (known->arguments.empty() ? "" : " " + std::string(known->arguments)) + "\n" +
          sentence(known->doc) + "\n");
    return 0;
  }
  return *run_subcommand(std::vector<std::string>{name, "--help"});
}

int show_version(std::span<const std::string> args) {
  if (!args.empty()) throw UsageError("'" + args[0] + "' is one too many; usage: ddprun version");
  print(version_text());
  return 0;
}

int validate_config(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun validate [--worker PROGRAM] TRAIN.json [key.path=value ...]";
  if (args.size() == 1 && (args[0] == "--help" || args[0] == "-h")) {
    print(
        std::string(kUsage) +
        "\nChecks a config and the files that it names, and prints it with every default filled in. --worker, or the config's\n"
        "\"worker\", names a program of yours, which is asked what keys of its own it has.\n");
    return 0;
  }
  std::optional<NamedWorker> worker;
  constexpr std::string_view kWorker = "--worker";
  if (!args.empty() && args[0].starts_with("--worker=")) {
    worker = {args[0].substr(kWorker.size() + 1), "flag --worker"};
    args = args.subspan(1);
  } else if (args.size() > 1 && args[0] == kWorker) {
    worker = {args[1], "flag --worker"};
    args = args.subspan(2);
  } else if (const auto variable = process_environment()("DDPRUN_WORKER")) {
    worker = {*variable, "environment DDPRUN_WORKER"};
  }
  if (args.empty() || args[0].starts_with("-")) throw UsageError(kUsage);
  for (const std::string_view ending : {".py", ".sh"}) {
    if (args[0].ends_with(ending))
      throw UsageError(args[0] + " is a script, and validate checks a train.json; ddprun --dry-run " + args[0] +
                       " shows how the script would be started");
  }
  std::vector<std::string> notes;
  bool own_program = false;
  const TrainConfig config = load_config(args[0], {args.begin() + 1, args.end()}, &notes, [&](const std::string& by_config) {
    const auto own = find_own_worker(worker, by_config, this_machine(), std::filesystem::current_path());
    own_program = own.has_value();
    return own ? TaskConfig(own->description.keys) : TaskConfig();
  });
  for (const std::string& note : notes) std::fprintf(stderr, "ddprun: warning: %s\n", note.c_str());
  print(to_json_text(config) + "\n");
  require_files(config, own_program);
  std::fprintf(stderr, "ddprun: %s is valid, and the files that it names are there\n", std::string(args[0]).c_str());
  return 0;
}

}  // namespace ddprun
