// Handles Ctrl-Z. The shell stops only ddprun, since workers have their own sessions. A worker that reads the terminal would
// continue to take the keys that are meant for the shell. So ddprun stops its workers before itself, and continues them when it
// continues.
#pragma once

#include <unistd.h>

#include <csignal>
#include <string>

#include "launcher/agent/round_workers.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/hang/hang_inquiry.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Stops this process by `signal` until SIGCONT arrives, even if the caller ignores the signal. Returns immediately in an
// orphaned process group: the kernel does not stop its processes.
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

// True if a shell's `bg` has continued this process, so that another process group has the terminal. False without a shell,
// since this process would then wait forever for the terminal.
inline bool is_in_background_of_a_shell() {
  const pid_t in_front = ::tcgetpgrp(STDIN_FILENO);
  const pid_t parent = ::getppid();
  const bool has_shell = ::getsid(parent) == ::getsid(0) && ::getpgid(parent) != ::getpgrp();
  return in_front > 0 && in_front != ::getpgrp() && has_shell;
}

inline void stop_with_workers(const Plan& plan, const RoundWorkers& workers, HangInquiry& hang, ConsoleWriter& console) {
  if (plan.rendezvous.many()) {
    console.line(Stream::kStderr,
                 "ddprun: stopped by Ctrl-Z. The other nodes take this one for lost, and go on without it, if it is not "
                 "continued within " +
                     format_duration(static_cast<double>(plan.rendezvous.heartbeat_timeout.count()) / 1000));
  }
  workers.signal_all(SIGSTOP);
  stop_by(SIGTSTP);
  const bool terminal_is_a_workers = plan.input == WorkersInput::kOurs && ::isatty(STDIN_FILENO) == 1;
  while (terminal_is_a_workers && is_in_background_of_a_shell()) stop_by(SIGTTIN);
  workers.signal_all(SIGCONT);
  hang.goes_on();
}

}  // namespace ddprun
