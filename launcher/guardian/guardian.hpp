// The guardian: a small process between the agent and its workers (decision 6). It is the workers' parent and the subreaper of
// all processes that they leave behind. It ends them all when the agent has ended. It completes the report if the agent died
// without kFarewell. It has one thread, no Asio and its own session, and no signal ends it except SIGKILL. guardian_link.hpp
// starts it and holds the agent's end.
#pragma once

#include <sys/resource.h>

#include <filesystem>

namespace ddprun::guardian {

struct GuardianSettings {
  int socket = -1;               // its end of the socket pair
  int lock_fd = -1;              // kept open until the guardian ends; -1: none
  std::filesystem::path report;  // may be empty
  rlimit open_files{};           // the limit that workers get
};

// Runs until the agent has closed its end of the socket and no process is left below this one; never returns.
[[noreturn]] void guardian_main(const GuardianSettings& settings);

}  // namespace ddprun::guardian
