// Parses a command line. An unknown flag is reported together with the most similar known flag, since CLI11 reports unknown
// flags without a suggestion.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/suggest.hpp"

namespace ddprun::trainer {

// Throws UsageError for the first argument that looks like a flag but is not a flag of `app`. `help` is the command that lists
// the flags, such as "ddptrain --help".
inline void refuse_unknown_flag(const std::vector<std::string>& arguments, const CLI::App& app, const std::string& help) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> flags(names.begin(), names.end());
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--")) {
      const bool number = argument.find_first_not_of("-.0123456789") == std::string::npos;
      if (argument.starts_with("-") && argument != "-h" && !number)
        throw UsageError("unknown flag " + argument + "; see " + help);
      continue;
    }
    const std::string flag = argument.substr(0, argument.find('='));
    if (std::ranges::find(flags, flag) == flags.end()) {
      throw UsageError("unknown flag " + flag + "." + did_you_mean(flag, flags) + " See " + help);
    }
  }
}

// Parses the arguments of `app`. The name of `app` must be the name of the command. If the arguments request help, sets `help`
// and returns false. Throws UsageError.
inline bool parse_arguments(CLI::App& app, const std::vector<std::string>& arguments, std::string& help) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // CLI11 expects the last argument first
  try {
    app.parse(reversed);
    return true;
  } catch (const CLI::CallForHelp&) {
    help = app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    const std::string command = app.get_name() + " --help";
    refuse_unknown_flag(arguments, app, command);
    throw UsageError(std::string(error.what()) + "; see " + command);
  }
}

}  // namespace ddprun::trainer
