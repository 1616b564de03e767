// Implementation of options.hpp. option_spellings.cpp first converts argv to a uniform notation. CLI11 then parses the
// options, counts flags, and uses the last value of a repeated option.
#include "launcher/options/options.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "common/base/error.hpp"
#include "launcher/options/option_spellings.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

// Returns the specifications of all options that were given.
std::set<const OptionSpec*> options_in(std::span<const std::string> normalised) {
  std::set<const OptionSpec*> found;
  for (const std::string_view word : normalised) {
    constexpr std::size_t kDashes = 2;
    if (const OptionSpec* option = find_option(word.substr(kDashes, word.find('=') - kDashes))) found.insert(option);
  }
  return found;
}

std::map<std::string, std::string, std::less<>> parse_flags(std::span<const std::string> options) {
  CLI::App app;
  app.set_help_flag();  // disables CLI11's own --help, since the table contains --help
  std::map<std::string, std::string, std::less<>> given;
  // Only the given options are registered with CLI11; their names have already been checked. Registering all options would
  // take a third of the instructions that a start of ddprun executes.
  for (const OptionSpec* option : options_in(options)) {
    const std::string name(option->name);
    if (!option->is_flag()) {
      app.add_option_function<std::string>("--" + name, [&given, name](const std::string& value) { given[name] = value; })
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else {
      app.add_flag_function("--" + name, [&given, name](std::int64_t count) { given[name] = std::to_string(count); });
    }
  }
  // Name and value become two words, since CLI11 would parse "--name=" as a missing value. CLI11 expects the words in reverse
  // order.
  std::vector<std::string> words;
  for (const auto& option : options) {
    const std::size_t equals = option.find('=');
    words.push_back(option.substr(0, equals));
    if (equals != std::string::npos) words.push_back(option.substr(equals + 1));
  }
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  return given;
}

// Options that print a text and exit. They are not read from the environment, because such a variable would make every start
// print the text and exit.
constexpr std::array<std::string_view, 6> kCommandLineOnly{"help",          "help-all",         "version",
                                                           "torchrun-help", "print-completion", "print-man"};

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + std::string(words[i]);
  }
  return text;
}

// Checks the form of a value. In the environment, a flag is a number, as in torchrun: PET_STANDALONE=0 means off, and
// PET_STANDALONE=yes is an error.
void check_type(const OptionSpec& option, const Setting& setting) {
  using Type = OptionSpec::Type;
  if (option.is_flag()) {
    const auto number = parse_whole(setting.value);
    if (!number || *number < 0) refuse(option.name, setting, "0 or 1");
    return;
  }
  if (option.type == Type::kText) return;
  const std::vector<std::string_view> words = words_of(option);
  if (std::find(words.begin(), words.end(), setting.value) != words.end()) return;
  // Only the form of a number is checked here. The code that uses the option checks the range.
  const std::string or_words = words.empty() ? "" : ", or " + joined(words);
  if (option.type == Type::kWhole && !reads_as_whole(setting.value)) refuse(option.name, setting, "a whole number" + or_words);
  if (option.type == Type::kDecimal && !reads_as_decimal(setting.value)) refuse(option.name, setting, "a number" + or_words);
  if (option.type == Type::kWord) refuse(option.name, setting, joined(words));
}

// `variable` is a buffer that is reused for the names of variables.
std::optional<Setting> from_environment(const OptionSpec& option, const Environment& environment, std::string& variable) {
  const auto value_of_variable = [&]() -> std::optional<Setting> {
    auto value = environment(variable);
    return value ? std::optional(Setting{*std::move(value), "environment " + variable}) : std::nullopt;
  };
  for (const std::string_view prefix : {"DDPRUN_", "PET_"}) {
    make_variable_name(variable, prefix, option.name);
    if (auto setting = value_of_variable()) return setting;
  }
  if (option.other_variable.empty()) return std::nullopt;
  variable = option.other_variable;
  return value_of_variable();
}

bool environment_has(std::string_view prefix) {
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    if (std::string_view(*variable).starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

Environment process_environment() {
  // At its start, ddprun looks up a name with each of the prefixes DDPRUN_ and PET_ for each option. Most environments contain
  // no such variable. If no such variable exists, the lookups are skipped.
  return [ours = environment_has("DDPRUN_"),
          torchruns = environment_has("PET_")](std::string_view name) -> std::optional<std::string> {
    if ((!ours && name.starts_with("DDPRUN_")) || (!torchruns && name.starts_with("PET_"))) return std::nullopt;
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
}

void refuse(std::string_view option, const Setting& setting, const std::string& expected) {
  throw UsageError("--" + std::string(option) + ": expected " + expected + ", but got '" + setting.value + "' (" +
                   setting.source + ")");
}

Settings::Settings(std::span<const std::string> normalised_options, const Environment& environment) {
  const auto flags = parse_flags(normalised_options);
  std::string variable;
  for (const OptionSpec& option : option_table()) {
    std::optional<Setting> setting;
    if (const auto flag = flags.find(option.name); flag != flags.end()) {
      setting = Setting{flag->second, "flag --" + flag->first};
    } else if (std::find(kCommandLineOnly.begin(), kCommandLineOnly.end(), option.name) == kCommandLineOnly.end()) {
      setting = from_environment(option, environment, variable);
    }
    if (setting) {
      check_type(option, *setting);
      values_.emplace(option.name, *std::move(setting));
    } else if (!option.default_text.empty()) {
      values_.emplace(option.name, Setting{std::string(option.default_text), "default"});
    }
  }
}

const Setting* Settings::find(std::string_view name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

bool Settings::given(std::string_view name) const {
  const Setting* setting = find(name);
  return setting != nullptr && setting->source != "default";
}

void Settings::adopt(std::string_view name, Setting setting) {
  const OptionSpec* const option = find_option(name);
  if (option == nullptr) throw InternalError("unknown option --" + std::string(name));
  check_type(*option, setting);
  values_.insert_or_assign(std::string(name), std::move(setting));
}

std::string Settings::text(std::string_view name) const {
  const Setting* setting = find(name);
  return setting == nullptr ? std::string() : setting->value;
}

bool Settings::flag(std::string_view name) const {
  const Setting* setting = find(name);
  return setting != nullptr && parse_whole(setting->value).value_or(0) != 0;
}

std::int64_t Settings::integer(std::string_view name, std::int64_t min, std::int64_t max) const {
  const Setting* setting = find(name);
  if (setting == nullptr) throw InternalError("option --" + std::string(name) + " has neither value nor default");
  const auto number = parse_whole(setting->value);
  if (!number || *number < min || *number > max) {
    refuse(name, *setting, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return *number;
}

double Settings::number(std::string_view name, double min, double max) const {
  const Setting* setting = find(name);
  if (setting == nullptr) throw InternalError("option --" + std::string(name) + " has neither value nor default");
  const auto number = parse_decimal(setting->value);
  if (!number || *number < min || *number > max) {
    char range[64];
    std::snprintf(range, sizeof range, "a number from %g to %g", min, max);
    refuse(name, *setting, range);
  }
  return *number;
}

Arguments parse_arguments(std::span<const std::string> args, const Environment& environment) {
  NormalisedArguments normalised = normalise(args);
  return {Settings(normalised.options, environment), std::move(normalised.positional), CalledAs::kDdprun, {}, {}};
}

}  // namespace ddprun
