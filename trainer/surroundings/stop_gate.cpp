#include "trainer/surroundings/stop_gate.hpp"

namespace ddprun::trainer {

StopGate::Verdict StopGate::may_start(std::int64_t finished) {
  std::unique_lock lock(mutex_);
  decided_.wait(lock, [this] { return !asked_ || target_; });
  if (target_ && finished >= *target_) return Verdict::kStop;
  started_ = finished + 1;
  return Verdict::kGo;
}

std::int64_t StopGate::ask() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
  return started_;
}

void StopGate::stop_at(std::int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    asked_ = true;
    target_ = step;
  }
  decided_.notify_all();
}

bool StopGate::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

}  // namespace ddprun::trainer
