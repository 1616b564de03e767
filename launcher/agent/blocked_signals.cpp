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
    // nohup starts ddprun with SIGHUP ignored, so a closed terminal must not end the job. A shell without job control starts
    // background programs with SIGINT and SIGQUIT ignored, so Ctrl-C must not end them. SIGTERM is always handled, since it
    // never comes from a terminal.
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
  dispose(SIGXFSZ, SIG_IGN);  // write(2) then fails with EFBIG at the limit of `ulimit -f`, and this process is not killed
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
  // sigaction fails for SIGKILL and SIGSTOP
  if (::sigaction(signal, &action, &before) == 0) before_.try_emplace(signal, before);
}

}  // namespace ddprun
