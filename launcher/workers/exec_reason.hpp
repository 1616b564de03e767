// The usual reason behind an errno of exec, which says little by itself. Source: execve(2).
#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// Why exec may have answered `error` for that file; reads the file. Empty when the errno says enough. Any thread.
std::string reason_of_exec_error(int error, const std::filesystem::path& program);

}  // namespace ddprun
