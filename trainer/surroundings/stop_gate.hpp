// Where the training loop stops when it was asked to: all ranks at the same step, without an agreement in every step. A rank
// that is asked tells how many steps it has started and starts no further one until it hears the largest of all ranks' numbers;
// everybody runs to exactly that step. Thread-safe: the loop calls may_start, a reader or signal thread the rest.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

namespace ddprun::trainer {

class StopGate {
 public:
  enum class Verdict { kGo, kStop };

  // The loop is about to start the step that comes after `finished` ones. Blocks while a stop was asked for and its step is not
  // known yet.
  Verdict may_start(std::int64_t finished);

  // A stop was asked for. Returns the number of steps this rank has started (0 before its first one in this process).
  std::int64_t ask();
  // The step at which every rank stops: the largest number that ask() returned anywhere.
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
