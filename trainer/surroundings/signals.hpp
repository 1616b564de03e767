// SIGTERM, SIGINT and SIGHUP of this process, handled by a thread of their own: a main thread that is blocked in a collective
// can't keep the worker from being told, or from leaving at once.
#pragma once

#include <functional>
#include <thread>

namespace ddprun::trainer {

// Blocks these signals in the calling thread and all that it starts later; called before there is any other. Ignores SIGPIPE,
// so that training outlives a closed console.
void block_stop_signals();

// Ends the process without any clean-up that could wait for a peer.
[[noreturn]] void leave_now(int exit_code);

class SignalWatch {
 public:
  // `on_signal` is called on the watching thread and must not block.
  explicit SignalWatch(std::function<void(int signal)> on_signal);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  void watch();

  std::function<void(int)> on_signal_;
  int signals_fd_ = -1;
  int end_fd_ = -1;
  std::thread thread_;
};

}  // namespace ddprun::trainer
