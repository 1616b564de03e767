// What usually lies behind an errno of exec, which by itself says little. Source: execve(2).
#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// Why exec may have answered `error` for that file, which is looked into; empty where the errno says it all. Any thread.
std::string reason_of_exec_error(int error, const std::filesystem::path& program);

}  // namespace ddprun
