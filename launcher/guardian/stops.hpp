// Measures how long workers were stopped by SIGSTOP, sent by a debugger or a user. The kernel has no counter for it, but
// waitid() reports it to the parent process. guardian.cpp calls this at each SIGCHLD.
#pragma once

#include <sys/wait.h>

#include <cstdint>

#include "launcher/guardian/agent_socket.hpp"
#include "launcher/guardian/worker_table.hpp"

namespace ddprun::guardian {

// Sends the agent a notice for each worker that continues. A worker that ends while it is stopped needs none.
inline void tell_of_stops(WorkerTable& workers, AgentSocket& agent, std::int64_t now_us) {
  for (siginfo_t info{}; ::waitid(P_ALL, 0, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0; info = {}) {
    const auto number = workers.number_of_process(info.si_pid);
    WorkerTable::Worker* const worker = number ? workers.find(*number) : nullptr;
    if (worker == nullptr) continue;
    if (info.si_code != CLD_CONTINUED) {
      if (worker->stopped_us == 0) worker->stopped_us = now_us;
    } else if (worker->stopped_us != 0) {
      agent.tell({.kind = Notice::Kind::kContinued, .worker = *number, .stopped_us = now_us - worker->stopped_us});
      worker->stopped_us = 0;
    }
  }
}

}  // namespace ddprun::guardian
