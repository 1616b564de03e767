// Text as a shell needs it typed. Called where commands and scripts for shells are written.
#pragma once

#include <string>

namespace ddprun {

// One word, quoted only when it has to be: 'it'\''s'. Pure.
std::string shell_quoted(const std::string& argument);

}  // namespace ddprun
