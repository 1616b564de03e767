// A thread that takes no signals: they are for the threads that expect them.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace ddprun {

// Runs `work` on a thread in which all signals are blocked from its beginning. Throws std::system_error when none can be had.
template <class Work>
std::thread quiet_thread(Work work) {
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
