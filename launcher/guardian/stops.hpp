// Measures how long workers were stopped by SIGSTOP, for example by a debugger. The kernel has no counter for this, but
// waitid() reports each stop to the parent process. guardian_loop.cpp calls notify_stops() at each SIGCHLD.
#pragma once

#include <sys/wait.h>

#include <cstdint>

#include "launcher/guardian/agent_socket.hpp"
#include "launcher/guardian/worker_table.hpp"

namespace ddprun::guardian {

// Notifies the agent of each worker that continues after a stop. A worker that exits while it is stopped needs no notice.
inline void notify_stops(WorkerTable& workers, AgentSocket& agent, std::int64_t now_us) {
  for (siginfo_t info{}; ::waitid(P_ALL, 0, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0; info = {}) {
    const auto number = workers.number_of_process(info.si_pid);
    WorkerTable::Worker* const worker = number ? workers.find(*number) : nullptr;
    if (worker == nullptr) continue;
    if (info.si_code != CLD_CONTINUED) {
      if (worker->stopped_us == 0) worker->stopped_us = now_us;
    } else if (worker->stopped_us != 0) {
      agent.notify({.kind = Notice::Kind::kContinued, .worker = *number, .stopped_us = now_us - worker->stopped_us});
      worker->stopped_us = 0;
    }
  }
}

}  // namespace ddprun::guardian
