// Handles SIGTERM, SIGINT and SIGHUP on a separate thread. The main thread may be blocked in a collective for a long time. With
// a separate thread, a stop request is handled even while the main thread is blocked.
#pragma once

#include <functional>
#include <thread>

namespace ddprun::trainer {

// Blocks the stop signals in the calling thread and in all threads that this thread creates later. Call this before the process
// creates another thread. Also ignores SIGPIPE, so that training continues when the terminal or pipe of stdout is closed.
void block_stop_signals();

// Flushes the output streams and ends the process without running destructors, because these could wait for another worker.
[[noreturn]] void exit_now(int exit_code);

class SignalWatch {
 public:
  // Starts a thread that calls `on_signal` for each stop signal. `on_signal` must not block.
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
