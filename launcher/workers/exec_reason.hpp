// Explains the errno of a failed execve(), which is often unclear on its own. Source: execve(2).
#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// The probable reason for `error` when `program` was executed; reads the file. Empty if the errno is clear enough. Thread-safe.
std::string reason_of_exec_error(int error, const std::filesystem::path& program);

}  // namespace ddprun
