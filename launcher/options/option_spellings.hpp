// Converts argv to a uniform notation before CLI11 parses it. It accepts names with dashes or underscores, unique prefixes,
// short options, and values after '='. It also finds the program, which is the first positional argument, and does not change
// any argument after it. CLI11 supports none of this. options.cpp calls normalise(). The code is pure: no I/O, no clock.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/options/options_table.hpp"

namespace ddprun {

struct NormalisedArguments {
  // "--name" or "--name=value", with full names from the table. Repeated options keep their order.
  std::vector<std::string> options;
  std::vector<std::string> positional;  // the program or the config, and its arguments
};

// `args` does not contain argv[0]. The first "--" before the program is dropped. Throws UsageError for an unknown or ambiguous
// option, a missing value, or a value for a flag. For an unknown option the message suggests the nearest valid one. `more`:
// options of a subcommand, which are found by their full names only.
NormalisedArguments normalise(std::span<const std::string> args, std::span<const OptionSpec> more = {});

// Returns the options of ddprun among a script's arguments, such as "--nproc-per-node". The user probably placed them after the
// script by mistake. Names that scripts often use for their own options are not returned.
std::vector<std::string> ddprun_options_in(std::span<const std::string> arguments);

}  // namespace ddprun
