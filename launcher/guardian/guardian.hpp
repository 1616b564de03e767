// The guardian: a small process between the agent and its workers (decision 6). It is the workers' parent and the subreaper of
// all processes that they leave behind. It ends them all when the agent is gone, and completes the report when the agent went
// without a farewell. It has one thread, no Asio, a session of its own and ignores every signal. guardian_link.hpp starts it
// and holds the agent's end.
#pragma once

#include <sys/resource.h>

#include <filesystem>

namespace ddprun::guardian {

struct GuardianSettings {
  int socket = -1;               // its end of the socket pair
  int lock_fd = -1;              // it is kept open to the end; -1: none
  std::filesystem::path report;  // may be empty
  rlimit open_files{};           // the limit that workers get
};

// Runs until the agent has closed its end of the socket and no process is left below this one; never returns.
[[noreturn]] void guardian_main(const GuardianSettings& settings);

}  // namespace ddprun::guardian
