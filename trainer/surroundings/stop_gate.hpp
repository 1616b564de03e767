// Stops the training loop of all ranks at the same step. If ranks stopped at different steps, the last all-reduce would wait
// without end for a rank that has left. With a collective in every step, the ranks could agree on the step, but training would
// be slower.
//
// Instead, the ranks communicate only after a stop request. Each rank reports how many steps it has started, and starts no
// further step. The largest of these numbers is the stop step. Ranks with a smaller number then train up to the stop step. For
// example, rank 0 has started 119 steps and rank 1 has started 120. Rank 0 also starts step 120, and both ranks stop after this
// step.
//
// The class is thread-safe. The training loop calls may_start(). The reader thread or the signal thread calls the other
// functions.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

namespace ddprun::trainer {

class StopGate {
 public:
  enum class Verdict { kGo, kStop };

  // Call this before each step, with the number of finished steps. After a stop request the call blocks until the stop step is
  // known.
  Verdict may_start(std::int64_t finished);

  // Handles a stop request. Returns the number of steps that this rank has started; 0 if this process has started no step.
  std::int64_t request_stop();
  // Sets the stop step: the largest result of request_stop() on any rank.
  void stop_at(std::int64_t step);

  bool stop_requested() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable decided_;
  std::int64_t started_ = 0;
  bool requested_ = false;
  std::optional<std::int64_t> target_;
};

}  // namespace ddprun::trainer
