// Text as a user must type it in a shell, for messages with commands and for shell scripts.
#pragma once

#include <string>

namespace ddprun {

// One word, in quotes only when it needs them: 'it'\''s'. Pure.
std::string shell_quoted(const std::string& argument);

}  // namespace ddprun
