// See options_normalise.hpp.
#include "launcher/options_normalise.hpp"

#include <algorithm>
#include <string_view>

#include "common/error.hpp"
#include "common/suggest.hpp"
#include "launcher/options_table.hpp"

namespace ddprun {
namespace {

std::string with_dashes(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

const OptionSpec& find_or_throw(std::string_view typed) {
  const std::string name = with_dashes(typed);
  if (const OptionSpec* exact = find_option(name)) return *exact;

  std::vector<const OptionSpec*> matches;
  for (const OptionSpec& option : option_table()) {
    if (!name.empty() && option.name.starts_with(name)) matches.push_back(&option);
  }
  if (matches.size() == 1) return *matches.front();
  if (matches.size() > 1) {
    std::string list;
    for (const OptionSpec* match : matches) list += (list.empty() ? "--" : ", --") + std::string(match->name);
    throw UsageError("option --" + std::string(typed) + " is ambiguous: it could be " + list);
  }
  std::vector<std::string_view> names;
  for (const OptionSpec& option : option_table()) names.push_back(option.name);
  const std::string near = nearest(name, names);
  throw UsageError("unknown option --" + std::string(typed) +
                   (near.empty() ? "; ddprun --help lists the options" : ". Did you mean --" + near + "?"));
}

// A word that cannot be meant as a value: "--json", "-v", but not "-", "-1" or "-.5".
bool looks_like_option(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const char second = word[1];
  return !(second == '.' || (second >= '0' && second <= '9'));
}

void add_letters(std::string_view word, std::vector<std::string>& options) {
  for (const char letter : word.substr(1)) {
    const OptionSpec* option = find_option(letter);
    if (option == nullptr) {
      throw UsageError("unknown option -" + std::string(1, letter) + (word.size() > 2 ? " in " + std::string(word) : "") +
                       "; ddprun --help lists the options");
    }
    options.push_back("--" + std::string(option->name));
  }
}

}  // namespace

NormalisedArguments normalise(std::span<const std::string> args) {
  NormalisedArguments result;
  std::size_t i = 0;
  for (; i < args.size(); ++i) {
    const std::string_view word = args[i];
    if (word == "--") {
      ++i;
      break;
    }
    if (word.size() < 2 || word[0] != '-') break;
    if (word[1] != '-') {
      add_letters(word, result.options);
      continue;
    }

    const std::size_t equals = word.find('=');
    const OptionSpec& option = find_or_throw(word.substr(2, equals == std::string_view::npos ? equals : equals - 2));
    const std::string name = "--" + std::string(option.name);
    if (option.kind != OptionSpec::Kind::kValue) {
      if (equals != std::string_view::npos)
        throw UsageError(name + " takes no value, but was given '" + std::string(word.substr(equals + 1)) + "'");
      result.options.push_back(name);
      continue;
    }
    if (equals != std::string_view::npos) {
      result.options.push_back(name + std::string(word.substr(equals)));
      continue;
    }
    if (i + 1 == args.size() || looks_like_option(args[i + 1])) {
      throw UsageError(name + " needs a value (" + std::string(option.value_name) + ")" +
                       (i + 1 == args.size() ? ", but the command line ends there" : ", but '" + args[i + 1] + "' follows"));
    }
    result.options.push_back(name + "=" + args[++i]);
  }
  result.positional.assign(args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
  return result;
}

}  // namespace ddprun
