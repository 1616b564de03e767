// One thread that does one piece of work at a time, for saving beside training. The caller hands work over and asks later what
// came of it; nothing queues up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace ddprun::trainer {

class BackgroundTask {
 public:
  BackgroundTask() = default;
  ~BackgroundTask();  // waits for the work at hand
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Precondition: neither busy nor finished. The thread is started with the first work; it has a lower priority than its
  // caller, who trains.
  void start(std::function<void()> work);

  // There is work and it has not ended.
  bool busy() const;
  // Returns when it has.
  void wait() const;
  void wait_at_most(std::chrono::milliseconds time) const;

  // The work has ended and nobody has been told. The exception it threw, or null. Asked again: nothing.
  std::optional<std::exception_ptr> take_finished();

 private:
  enum class State { kIdle, kWaiting, kRunning, kFinished };
  void run(const std::stop_token& ended);

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  State state_ = State::kIdle;
  std::function<void()> work_;
  std::exception_ptr error_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace ddprun::trainer
