// See options.hpp. CLI11 does what it is good at: it takes options apart, counts flags and lets the last repeat win;
// options_normalise.cpp has made argv plain before.
#include "launcher/options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "common/error.hpp"
#include "launcher/options_normalise.hpp"
#include "launcher/options_table.hpp"

namespace ddprun {
namespace {

using Kind = OptionSpec::Kind;

std::map<std::string, std::string, std::less<>> parse_flags(std::span<const std::string> options) {
  CLI::App app;
  app.set_help_flag();  // --help is an option like the others
  std::map<std::string, std::string, std::less<>> given;
  for (const OptionSpec& option : option_table()) {
    const std::string name(option.name);
    if (option.kind == Kind::kValue) {
      app.add_option_function<std::string>("--" + name, [&given, name](const std::string& value) { given[name] = value; })
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else {
      app.add_flag_function("--" + name, [&given, name](std::int64_t count) { given[name] = std::to_string(count); });
    }
  }
  // Name and value as words of their own, since CLI11 takes "--name=" for a missing value. It wants the words last first.
  std::vector<std::string> reversed;
  for (auto word = options.rbegin(); word != options.rend(); ++word) {
    const std::size_t equals = word->find('=');
    if (equals != std::string::npos) reversed.push_back(word->substr(equals + 1));
    reversed.push_back(word->substr(0, equals));
  }
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  return given;
}

// Flags in the environment are numbers, as torchrun reads them: PET_STANDALONE=0 is off, =yes is an error.
void check_switch(const OptionSpec& option, const Setting& setting) {
  if (option.kind == Kind::kValue) return;
  int number = 0;
  const char* end = setting.value.data() + setting.value.size();
  const auto [stop, error] = std::from_chars(setting.value.data(), end, number);
  if (error != std::errc() || stop != end || number < 0) refuse(option.name, setting, "0 or 1");
}

std::optional<Setting> from_environment(const OptionSpec& option, const Environment& environment) {
  std::vector<std::string> variables{variable_name("DDPRUN_", option.name), variable_name("PET_", option.name)};
  if (!option.other_variable.empty()) variables.emplace_back(option.other_variable);
  for (const std::string& variable : variables) {
    if (auto value = environment(variable)) return Setting{*value, "environment " + variable};
  }
  return std::nullopt;
}

}  // namespace

Environment process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
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
  for (const OptionSpec& option : option_table()) {
    const std::string name(option.name);
    if (const auto flag = flags.find(name); flag != flags.end()) {
      values_[name] = {flag->second, "flag --" + name};
    } else if (auto setting =
                   option.name == "help" || option.name == "version" ? std::nullopt : from_environment(option, environment)) {
      check_switch(option, *setting);
      values_[name] = *setting;
    } else if (!option.default_text.empty()) {
      values_[name] = {std::string(option.default_text), "default"};
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

std::string Settings::text(std::string_view name) const {
  const Setting* setting = find(name);
  return setting == nullptr ? std::string() : setting->value;
}

bool Settings::flag(std::string_view name) const {
  const Setting* setting = find(name);
  return setting != nullptr && setting->value != "0";
}

std::int64_t Settings::integer(std::string_view name, std::int64_t min, std::int64_t max) const {
  const Setting* setting = find(name);
  if (setting == nullptr) throw InternalError("option --" + std::string(name) + " has neither value nor default");
  std::int64_t number = 0;
  const char* end = setting->value.data() + setting->value.size();
  const auto [stop, error] = std::from_chars(setting->value.data(), end, number);
  if (error != std::errc() || stop != end || number < min || number > max) {
    refuse(name, *setting, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return number;
}

double Settings::number(std::string_view name, double min, double max) const {
  const Setting* setting = find(name);
  if (setting == nullptr) throw InternalError("option --" + std::string(name) + " has neither value nor default");
  double number = 0;
  const char* end = setting->value.data() + setting->value.size();
  const auto [stop, error] = std::from_chars(setting->value.data(), end, number);
  if (error != std::errc() || stop != end || !std::isfinite(number) || number < min || number > max) {
    char range[64];
    std::snprintf(range, sizeof range, "a number from %g to %g", min, max);
    refuse(name, *setting, range);
  }
  return number;
}

Arguments parse_arguments(std::span<const std::string> args, const Environment& environment) {
  NormalisedArguments normalised = normalise(args);
  return {Settings(normalised.options, environment), std::move(normalised.positional)};
}

}  // namespace ddprun
