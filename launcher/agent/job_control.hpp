// Handles Ctrl-Z. The terminal stops only ddprun, since each worker has its own session. A worker that reads the terminal
// would then compete with the shell for input. So ddprun stops its workers before itself, and continues them when it is
// continued.
#pragma once

#include <unistd.h>

#include <csignal>
#include <string>

#include "launcher/agent/worker_supervisor.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/hang/hang_monitor.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Stops this process with `signal` until SIGCONT arrives, even if the signal was ignored. In an orphaned process group the
// function returns immediately, because the kernel does not stop such processes.
inline void stop_by(int signal) {
  struct sigaction stops {
  }, before_action{};
  stops.sa_handler = SIG_DFL;
  ::sigaction(signal, &stops, &before_action);
  sigset_t only{};
  sigset_t before{};
  sigemptyset(&only);
  sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, &before);
  ::kill(::getpid(), signal);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::sigaction(signal, &before_action, nullptr);
}

// Returns true if a shell has continued this process in the background (`bg`), so another process group owns the terminal.
// Returns false if no shell controls this process, because no shell could then move it to the foreground again.
inline bool is_background_job() {
  const pid_t foreground_group = ::tcgetpgrp(STDIN_FILENO);
  const pid_t parent = ::getppid();
  const bool has_shell = ::getsid(parent) == ::getsid(0) && ::getpgid(parent) != ::getpgrp();
  return foreground_group > 0 && foreground_group != ::getpgrp() && has_shell;
}

inline void stop_with_workers(const Plan& plan, const WorkerSupervisor& workers, HangMonitor& hang, ConsoleWriter& console) {
  if (plan.rendezvous.many()) {
    console.line(Stream::kStderr,
                 "ddprun: suspended by Ctrl-Z. Resume it (fg), or the other nodes treat this node as lost and continue "
                 "without it after " +
                     format_duration(static_cast<double>(plan.rendezvous.heartbeat_timeout.count()) / 1000));
  }
  workers.signal_all(SIGSTOP);
  stop_by(SIGTSTP);
  const bool worker_owns_terminal = plan.input == WorkersInput::kOurs && ::isatty(STDIN_FILENO) == 1;
  while (worker_owns_terminal && is_background_job()) stop_by(SIGTTIN);
  workers.signal_all(SIGCONT);
  hang.resumed();
}

}  // namespace ddprun
