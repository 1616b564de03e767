// A thread that runs one function at a time, so that a checkpoint can be written while training continues. The caller starts
// the function and later collects its result. There is no queue.
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
  ~BackgroundTask();  // blocks until the running function has returned
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Starts the work. Precondition: no work is running, and take_finished() has returned the result of the previous work. The
  // first call starts the thread, with a lower priority than the training thread.
  void start(std::function<void()> work);

  // Returns true from start() until the work has ended.
  bool busy() const;
  // Blocks until busy() is false.
  void wait() const;
  void wait_at_most(std::chrono::milliseconds time) const;

  // Returns the result of work that has ended: the exception that it threw, or a null pointer. Returns nullopt if no work has
  // ended since the last call.
  std::optional<std::exception_ptr> take_finished();

 private:
  enum class State { kIdle, kWaiting, kRunning, kFinished };
  void run(const std::stop_token& ended);

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  State state_ = State::kIdle;
  std::function<void()> work_;
  std::exception_ptr error_;
  std::jthread thread_;  // declared last: the thread must end before the members that it uses are destroyed
};

}  // namespace ddprun::trainer
