// Converts argv to a uniform notation before CLI11 parses it: spellings with dashes or underscores, unique prefixes, short
// options, and values after '='. It also finds the first positional argument; all words after it are unchanged. CLI11 supports
// none of this. Pure; options.cpp calls it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddprun {

struct NormalisedArguments {
  // "--name" or "--name=value" with full names from the table; repeated options keep their order
  std::vector<std::string> options;
  std::vector<std::string> positional;  // the program or config and all words after it, unchanged
};

// `args` are without argv[0]. The first "--" before the program is dropped. Throws UsageError for an unknown or ambiguous
// option, a missing value, or a value for a flag; each message names the option and the nearest valid one.
NormalisedArguments normalise(std::span<const std::string> args);

// Options of ddprun that occur among a script's arguments, such as "--nproc-per-node". Names that scripts often use themselves
// are excluded.
std::vector<std::string> own_options_in(std::span<const std::string> arguments);

}  // namespace ddprun
