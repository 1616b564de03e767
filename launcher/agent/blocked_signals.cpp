// Implementation of blocked_signals.hpp.
#include "launcher/agent/blocked_signals.hpp"

#include <sys/signalfd.h>

#include <cerrno>
#include <system_error>

#include "common/base/error.hpp"

namespace ddprun {

BlockedSignals::BlockedSignals(const std::vector<int>& handled) {
  sigemptyset(&set_);
  std::vector<int> ours;
  for (const int signal : handled) {
    // Under nohup the loss of the terminal must not end the job. A shell without job control starts background programs with
    // SIGINT and SIGQUIT ignored, so that Ctrl-C does not reach them. SIGTERM is meant for this process and is always handled.
    struct sigaction current {};
    const bool from_terminal = signal == SIGHUP || signal == SIGINT || signal == SIGQUIT;
    if (from_terminal && ::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN) continue;
    sigaddset(&set_, signal);
    ours.push_back(signal);
  }
  struct sigaction ctrl_z {};
  if (::sigaction(SIGTSTP, nullptr, &ctrl_z) == 0 && ctrl_z.sa_handler != SIG_IGN) sigaddset(&set_, SIGTSTP);
  sigaddset(&set_, SIGUSR1);
  sigaddset(&set_, SIGUSR2);
  sigaddset(&set_, SIGWINCH);
  sigaddset(&set_, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &set_, &mask_before_);
  for (const int signal : ours) dispose(signal, SIG_DFL);
  dispose(SIGPIPE, SIG_IGN);
  dispose(SIGXFSZ, SIG_IGN);  // a file above the limit of `ulimit -f` then makes write(2) fail
  dispose(SIGCHLD, SIG_DFL);
}

BlockedSignals::~BlockedSignals() {
  for (const auto& [signal, before] : before_) ::sigaction(signal, &before, nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

int BlockedSignals::descriptor() const {
  const int fd = ::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) throw InternalError("signalfd failed: " + std::generic_category().message(errno));
  return fd;
}

void BlockedSignals::dispose(int signal, void (*disposition)(int)) {
  struct sigaction action {};
  action.sa_handler = disposition;
  struct sigaction before {};
  if (::sigaction(signal, &action, &before) == 0) before_.try_emplace(signal, before);  // KILL and STOP can't be handled
}

}  // namespace ddprun
