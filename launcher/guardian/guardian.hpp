// The guardian: a small process between the agent and its workers (decision 6). It is the workers' parent and the subreaper
// of all they leave behind, ends them all when the agent is gone, and completes the report when it went without a farewell. It
// has one thread, no Asio, a session of its own and ignores every signal. guardian_link.hpp starts it and holds the agent's
// end.
#pragma once

#include <sys/resource.h>

#include <filesystem>

namespace ddprun::guardian {

struct GuardianSettings {
  int socket = -1;               // its end
  int lock_fd = -1;              // kept open to the end; -1: none
  std::filesystem::path report;  // may be empty
  rlimit open_files{};           // what workers get
};

// Runs until the agent's end of the socket is closed and nothing is left below this process; never returns.
[[noreturn]] void guardian_main(const GuardianSettings& settings);

}  // namespace ddprun::guardian
