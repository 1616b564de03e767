// Makes argv plain before CLI11 sees it: dash and underscore spellings, unique prefixes, letters, values after '=', and the cut
// at the first positional argument, after which every word is left alone. CLI11 can do none of this. Pure; options.cpp calls
// it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddprun {

struct NormalisedArguments {
  std::vector<std::string> options;     // "--name", "--name=value" with full names from the table; repeats keep their order
  std::vector<std::string> positional;  // the program or config and all words after it, unchanged
};

// `args` are without argv[0]. The first "--" before the program is dropped. Throws UsageError for an unknown or ambiguous
// option, a missing value, or a value for a flag; each message names the option and the nearest valid one.
NormalisedArguments normalise(std::span<const std::string> args);

// Options of ddprun among the arguments of a script, "--nproc-per-node", without those that scripts often have as well.
std::vector<std::string> own_options_in(std::span<const std::string> arguments);

}  // namespace ddprun
