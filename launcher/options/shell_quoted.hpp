// Quotes text for a POSIX shell, for commands in messages and for generated scripts.
#pragma once

#include <string>

namespace ddprun {

// Quotes one word if it contains a special character: the word it's becomes 'it'\''s'. The code is pure: no I/O, no clock.
std::string shell_quoted(const std::string& argument);

}  // namespace ddprun
