#include "launcher/options/option_spellings.hpp"

#include <algorithm>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/suggest.hpp"
#include "common/other_words/foreign_names.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/torchrun_differences.hpp"

namespace ddprun {
namespace {

std::string with_dashes(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

const OptionSpec& find_or_throw(std::string_view typed, std::span<const OptionSpec> more) {
  const std::string name = with_dashes(typed);
  if (const auto own = std::ranges::find(more, name, &OptionSpec::name); own != more.end()) return *own;
  if (const OptionSpec* exact = find_option(name)) return *exact;

  // A prefix that is unique among torchrun's options keeps torchrun's meaning, even if options of ddprun start with it as well.
  std::vector<const OptionSpec*> matches, of_torchrun;
  for (const OptionSpec& option : option_table()) {
    if (name.empty() || !option.name.starts_with(name)) continue;
    matches.push_back(&option);
    if (is_torchrun_option(option.name)) of_torchrun.push_back(&option);
  }
  if (of_torchrun.size() == 1) return *of_torchrun.front();
  if (matches.size() == 1) return *matches.front();
  if (matches.size() > 1) {
    std::string list;
    for (const OptionSpec* match : matches) list += (list.empty() ? "--" : ", --") + std::string(match->name);
    throw UsageError("option --" + std::string(typed) + " is ambiguous: it could be " + list);
  }
  if (const std::string hint = hint_for_foreign_option(name); !hint.empty()) {
    throw UsageError("unknown option --" + std::string(typed) + hint);
  }
  std::vector<std::string_view> names;
  for (const OptionSpec& option : option_table()) names.push_back(option.name);
  for (const OptionSpec& option : more) names.push_back(option.name);
  const std::string near = closest_name(name, names);
  throw UsageError("unknown option --" + std::string(typed) +
                   (near.empty() ? "; ddprun --help lists the options" : ". Did you mean --" + near + "?"));
}

// Returns true for a word that cannot be the value of an option, such as "--json" or "-v". Returns false for "-", "-1", "-.5"
// or "- of rank 0".
bool looks_like_option(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const char second = word[1];
  if (second == '.' || (second >= '0' && second <= '9')) return false;
  const std::string_view name = word.substr(0, word.find('='));
  return word.find(' ') == std::string_view::npos ||
         (name.starts_with("--") && find_option(with_dashes(name.substr(2))) != nullptr);
}

// Returns the value of the option, which is the word after args[i], and advances i to that word.
std::string next_value(std::span<const std::string> args, std::size_t& i, const OptionSpec& option) {
  if (i + 1 == args.size() || looks_like_option(args[i + 1])) {
    throw UsageError("--" + std::string(option.name) + " needs a value (" + std::string(option.value_name) + ")" +
                     (i + 1 == args.size() ? ", but the command line ends there" : ", but '" + args[i + 1] + "' follows"));
  }
  return args[++i];
}

// Handles short options: "-m", "-vv", "-t3", "-t=3", "-mt3" and "-t 3". If a letter takes a value, the rest of the word is its
// value. If nothing follows the letter, the value is the next word.
void add_letters(std::span<const std::string> args, std::size_t& i, std::vector<std::string>& options) {
  const std::string_view word = args[i];
  for (std::size_t at = 1; at < word.size(); ++at) {
    const OptionSpec* option = find_option(word[at]);
    if (option == nullptr) {
      const std::string hint = hint_for_foreign_option(word.substr(1));
      throw UsageError("unknown option -" + std::string(1, word[at]) + (word.size() > 2 ? " in " + std::string(word) : "") +
                       (hint.empty() ? "; ddprun --help lists the options" : hint));
    }
    const std::string name = "--" + std::string(option->name);
    if (option->is_flag()) {
      options.push_back(name);
      continue;
    }
    std::string_view rest = word.substr(at + 1);
    if (rest.starts_with('=')) rest.remove_prefix(1);
    options.push_back(name + "=" + (at + 1 < word.size() ? std::string(rest) : next_value(args, i, *option)));
    return;
  }
}

// Returns true if an option states that the first positional argument is not a config, even if its name ends in .json.
bool has_program_option(const std::vector<std::string>& options) {
  return std::any_of(options.begin(), options.end(), [](const std::string& option) {
    return option == "--module" || option == "--no-python" || option == "--run-path";
  });
}

}  // namespace

std::vector<std::string> ddprun_options_in(std::span<const std::string> arguments) {
  std::vector<std::string> found;
  for (const std::string_view word : arguments) {
    if (word == "--") break;
    if (!word.starts_with("--")) continue;
    const std::string name =
        with_dashes(word.substr(2, word.find('=') == std::string_view::npos ? word.npos : word.find('=') - 2));
    // Scripts often define options with these names, so they are not reported.
    constexpr std::string_view kScriptOptions[] = {"help",    "version", "verbose", "quiet",        "resume", "json",
                                                   "run-dir", "log-dir", "role",    "start-method", "worker"};
    if (find_option(name) != nullptr && std::ranges::find(kScriptOptions, name) == std::end(kScriptOptions))
      found.push_back("--" + name);
  }
  return found;
}

// The only arguments after a config are "key.path=value", so options may also appear between and after them.
NormalisedArguments normalise(std::span<const std::string> args, std::span<const OptionSpec> more) {
  NormalisedArguments result;
  std::size_t i = 0;
  for (; i < args.size(); ++i) {
    const std::string_view word = args[i];
    if (word == "--") {
      ++i;
      break;
    }
    if (word.size() < 2 || word[0] != '-') {
      const bool is_program = result.positional.empty() && (!word.ends_with(".json") || has_program_option(result.options));
      if (is_program) break;
      result.positional.push_back(args[i]);
      continue;
    }
    if (word[1] != '-') {
      add_letters(args, i, result.options);
      continue;
    }

    const std::size_t equals = word.find('=');
    const OptionSpec& option = find_or_throw(word.substr(2, equals == std::string_view::npos ? equals : equals - 2), more);
    const std::string name = "--" + std::string(option.name);
    if (option.is_flag()) {
      if (equals != std::string_view::npos)
        throw UsageError(name + " takes no value, but was given '" + std::string(word.substr(equals + 1)) + "'");
      result.options.push_back(name);
      continue;
    }
    if (equals != std::string_view::npos) {
      result.options.push_back(name + std::string(word.substr(equals)));
      continue;
    }
    result.options.push_back(name + "=" + next_value(args, i, option));
  }
  result.positional.insert(result.positional.end(), args.begin() + static_cast<std::ptrdiff_t>(std::min(i, args.size())),
                           args.end());
  return result;
}

}  // namespace ddprun
