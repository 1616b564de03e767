#include "trainer/surroundings/stop_gate.hpp"

namespace ddprun::trainer {

StopGate::Verdict StopGate::may_start(std::int64_t finished) {
  std::unique_lock lock(mutex_);
  decided_.wait(lock, [this] { return !requested_ || target_; });
  if (target_ && finished >= *target_) return Verdict::kStop;
  started_ = finished + 1;
  return Verdict::kGo;
}

std::int64_t StopGate::request_stop() {
  const std::lock_guard lock(mutex_);
  requested_ = true;
  return started_;
}

void StopGate::stop_at(std::int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    requested_ = true;
    target_ = step;
  }
  decided_.notify_all();
}

bool StopGate::stop_requested() const {
  const std::lock_guard lock(mutex_);
  return requested_;
}

}  // namespace ddprun::trainer
