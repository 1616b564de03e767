// Makes argv plain before CLI11 sees it: dash and underscore spellings, unique prefixes, letters, values joined by '=', and the
// cut at the first positional, after which nothing is looked at. CLI11 knows none of these. Pure; called by options.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddprun {

struct NormalisedArguments {
  std::vector<std::string> options;     // "--name", "--name=value" with full names from the table; repeats in order
  std::vector<std::string> positional;  // the program or config and everything after it, untouched
};

// `args` without argv[0]. The first "--" before the program is swallowed. Throws UsageError for an unknown or ambiguous option,
// a missing value, or a value given to a flag; each names the option and the nearest valid one.
NormalisedArguments normalise(std::span<const std::string> args);

}  // namespace ddprun
