// CLI11 reports an unknown flag without a suggestion. This adds the most similar flag to the message.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/suggest.hpp"

namespace ddprun::trainer {

// Throws UsageError for the first argument that is not in `flags`. `help` is the command that lists them: "ddptrain --help".
inline void refuse_unknown_flag(const std::vector<std::string>& arguments, std::span<const std::string_view> flags,
                                const std::string& help) {
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

}  // namespace ddprun::trainer
