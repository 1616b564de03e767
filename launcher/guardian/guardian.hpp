// The guardian: a small process between the agent and its workers (docs/internals/decisions/guardian/guardian.md). It is the
// parent of the workers and the subreaper of all processes that they leave behind. When the agent has exited, it kills all of
// them. If the agent has died and has not sent kCleanShutdown, the guardian also completes the report. The guardian has one
// thread and its own session, and does not use Asio. Only SIGKILL can end it. guardian_link.hpp starts it and owns the agent's
// end of the socket.
#pragma once

#include <sys/resource.h>

#include <filesystem>

namespace ddprun::guardian {

struct GuardianSettings {
  int socket = -1;               // the guardian's end of the socket pair
  int lock_fd = -1;              // descriptor of the run directory's lock, kept open until the guardian exits; -1: no lock
  std::filesystem::path report;  // path of the job's report; may be empty
  rlimit open_files{};           // limit on the number of open files for the workers (the guardian may have a higher limit)
};

// Runs until the agent has closed its end of the socket and no descendant of this process is left. Never returns.
[[noreturn]] void guardian_main(const GuardianSettings& settings);

}  // namespace ddprun::guardian
