#include "trainer/surroundings/signals.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <system_error>
#include <utility>

namespace ddprun::trainer {
namespace {

// Returns the signals that stop this process. SIGINT and SIGHUP are omitted if this process ignores them, as under nohup or in
// a background job of a shell. A signalfd would receive a blocked signal even if it is ignored, and the signal would stop the
// job.
sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  for (const int signal : {SIGINT, SIGHUP}) {
    struct sigaction current {};
    ::sigaction(signal, nullptr, &current);
    if (current.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

void exit_now(int exit_code) {
  std::fflush(nullptr);
  ::_exit(exit_code);
}

SignalWatch::SignalWatch(std::function<void(int)> on_signal) : on_signal_(std::move(on_signal)) {
  const sigset_t set = stop_signals();
  signals_fd_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  end_fd_ = ::eventfd(0, EFD_CLOEXEC);
  if (signals_fd_ < 0 || end_fd_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  thread_ = std::thread([this] { watch(); });
}

SignalWatch::~SignalWatch() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(end_fd_, &one, sizeof one);
  thread_.join();
  ::close(signals_fd_);
  ::close(end_fd_);
}

void SignalWatch::watch() {
  while (true) {
    pollfd sources[2] = {{signals_fd_, POLLIN, 0}, {end_fd_, POLLIN, 0}};
    if (::poll(sources, 2, -1) < 0) continue;  // a signal has interrupted poll() (EINTR)
    if (sources[1].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signals_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      on_signal_(static_cast<int>(info.ssi_signo));
  }
}

}  // namespace ddprun::trainer
