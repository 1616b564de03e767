// Defines the signals that the guardian records or forwards to the agent, and the guardian's monotonic clock.
#pragma once

#include <sys/signalfd.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

#include "common/system/realtime.hpp"
#include "launcher/guardian/agent_socket.hpp"
#include "launcher/leftovers/process_tree.hpp"

namespace ddprun::guardian {

// Signals that stop a job. If a worker sends one of them to its parent, which is the guardian, the guardian forwards it to the
// agent.
inline constexpr std::array<int, 4> kForwardedSignals{SIGTERM, SIGINT, SIGHUP, SIGQUIT};

// Returns true for signals on which programs usually save and exit.
inline bool ends_programs(int signal) {
  return std::ranges::find(kForwardedSignals, signal) != kForwardedSignals.end() || signal == SIGUSR1 || signal == SIGUSR2;
}

inline std::int64_t monotonic_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

// Forwards a signal of a worker to the agent. Under torchrun the launcher is the workers' parent, so "kill $PPID" in a worker
// stops the job. Here the parent is the guardian.
//
// If the sender has already exited, it may be a worker's `kill` command or a process outside of the job. Such an outside
// process may have sent its SIGINT to the agent too. A second SIGINT would make the agent kill the workers. So the signal of
// an exited sender is forwarded as SIGTERM. Ctrl-C never reaches the guardian, which has its own session.
inline void pass_on(const signalfd_siginfo& info, AgentSocket& agent) {
  const auto sender = static_cast<pid_t>(info.ssi_pid);
  const bool gone = sender > 0 && ::kill(sender, 0) != 0 && errno == ESRCH;
  if (!gone && !is_below_this_process(sender)) return;
  const int number = gone ? SIGTERM : static_cast<int>(info.ssi_signo);
  agent.notify({.kind = Notice::Kind::kSignalled, .worker = -1, .signal = number, .time_ns = realtime_ns()});
}

}  // namespace ddprun::guardian
