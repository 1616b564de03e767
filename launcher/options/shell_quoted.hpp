// Quotes text for a shell, for messages with commands and for shell scripts.
#pragma once

#include <string>

namespace ddprun {

// Quotes one word, but only if necessary: 'it'\''s'. Pure.
std::string shell_quoted(const std::string& argument);

}  // namespace ddprun
