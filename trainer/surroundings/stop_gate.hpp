// Stops the training loop of all ranks at the same step, without a collective in every step. After a stop request a rank
// reports how many steps it has started, and starts no further one. It waits for the largest number of all ranks, and all ranks
// run to exactly that step. Thread-safe: the loop calls may_start(), a reader or signal thread the rest.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

namespace ddprun::trainer {

class StopGate {
 public:
  enum class Verdict { kGo, kStop };

  // Call before the step after `finished` steps. Blocks between a stop request and the arrival of the stop step.
  Verdict may_start(std::int64_t finished);

  // Handles a stop request. Returns the number of steps that this rank has started (0 before its first one in this process).
  std::int64_t ask();
  // Sets the step at which every rank stops: the largest result of ask() on any rank.
  void stop_at(std::int64_t step);

  bool asked() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable decided_;
  std::int64_t started_ = 0;
  bool asked_ = false;
  std::optional<std::int64_t> target_;
};

}  // namespace ddprun::trainer
