#include "trainer/checkpoint/background_task.hpp"

#include <sys/resource.h>

#include <stdexcept>
#include <utility>

namespace ddprun::trainer {
namespace {

// On a core that a training thread also uses, a thread with this niceness gets about a tenth of the CPU time.
constexpr int kNiceness = 10;

}  // namespace

BackgroundTask::~BackgroundTask() {
  wait();
}

void BackgroundTask::start(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kIdle) throw std::logic_error("BackgroundTask: started while other work is in progress");
    state_ = State::kWaiting;
    work_ = std::move(work);
  }
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& ended) { run(ended); });
  changed_.notify_all();
}

bool BackgroundTask::busy() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kWaiting || state_ == State::kRunning;
}

void BackgroundTask::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ == State::kIdle || state_ == State::kFinished; });
}

void BackgroundTask::wait_at_most(std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return state_ == State::kIdle || state_ == State::kFinished; });
}

std::optional<std::exception_ptr> BackgroundTask::take_finished() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kFinished) return std::nullopt;
  state_ = State::kIdle;
  return std::exchange(error_, nullptr);
}

void BackgroundTask::run(const std::stop_token& ended) {
  // On Linux, setpriority() applies to the calling thread only. If the call fails, this thread takes more CPU time from the
  // training thread, which is acceptable.
  ::setpriority(PRIO_PROCESS, 0, kNiceness);
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, ended, [this] { return state_ == State::kWaiting; })) {
    state_ = State::kRunning;
    const std::function<void()> work = std::exchange(work_, nullptr);
    lock.unlock();
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    state_ = State::kFinished;
    changed_.notify_all();
  }
}

}  // namespace ddprun::trainer
