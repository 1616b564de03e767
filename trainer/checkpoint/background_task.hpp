// A thread that executes one piece of work at a time, so that saving can overlap training. The caller starts the work and later
// takes its result. There is no queue.
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
  ~BackgroundTask();  // waits for the current work
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Precondition: the task is neither busy nor finished. The first call starts the thread. Its priority is lower than that of
  // the training thread.
  void start(std::function<void()> work);

  // True while there is work that has not ended.
  bool busy() const;
  // Returns when the task is not busy.
  void wait() const;
  void wait_at_most(std::chrono::milliseconds time) const;

  // Returns the result of work that has ended: the exception that it threw, or a null pointer. Each result is returned once;
  // otherwise nullopt.
  std::optional<std::exception_ptr> take_finished();

 private:
  enum class State { kIdle, kWaiting, kRunning, kFinished };
  void run(const std::stop_token& ended);

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  State state_ = State::kIdle;
  std::function<void()> work_;
  std::exception_ptr error_;
  std::jthread thread_;  // last, since the thread uses the other members
};

}  // namespace ddprun::trainer
