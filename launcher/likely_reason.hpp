// What usually lies behind an end that says nothing by itself: the reason behind an errno of exec, and behind a few signals.
// Sources: execve(2), signal(7), getrlimit(2).
#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// Why exec may have answered `error` for that file, which is looked into; empty where the errno says it all. Any thread.
std::string reason_of_exec_error(int error, const std::filesystem::path& program);

// What sends that signal, and what to do about it; empty where it may be anything (SIGSEGV) or is known better (SIGKILL).
std::string reason_of_signal(int signal);

}  // namespace ddprun
