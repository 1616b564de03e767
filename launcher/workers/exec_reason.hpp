// Explains why execve() failed, since the errno alone is often unclear to users. Source of the rules: execve(2).
#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// Returns the probable reason why an execve() of `program` failed with errno `error`. Reads the program's first line. Returns
// an empty text if the errno's own text is clear enough. The function is thread-safe.
std::string reason_of_exec_error(int error, const std::filesystem::path& program);

}  // namespace ddprun
