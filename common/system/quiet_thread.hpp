// A thread that receives no signals, since other threads handle them.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace ddprun {

// Runs `work` on a thread that blocks all signals from its start. Throws std::system_error if no thread can be started.
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
