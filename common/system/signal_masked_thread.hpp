// Starts a thread that blocks all signals, so that the kernel delivers them to other threads.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace ddprun {

// Runs `work` on a thread that blocks all signals from its start. Throws std::system_error if no thread can be started.
template <class Work>
std::thread signal_masked_thread(Work work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { ::pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } const restore{before};
  return std::thread(std::move(work));
}

}  // namespace ddprun
