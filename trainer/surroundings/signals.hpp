// A thread handles SIGTERM, SIGINT and SIGHUP of this process. A main thread that is blocked in a collective then delays
// neither a stop request nor an immediate exit.
#pragma once

#include <functional>
#include <thread>

namespace ddprun::trainer {

// Blocks these signals in the calling thread and in threads that it starts later. Call it before any other thread exists. Also
// ignores SIGPIPE, so that training survives a closed console.
void block_stop_signals();

// Ends the process without any clean-up, since clean-up could wait for a peer.
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
