// The collectives of a model's synchronized batch norm layers in a training step: all-gather and all-reduce. They use the same
// process group as the gradient all-reduce. So aborting that group ends a blocked call immediately
// (trainer/parallel/group_breaker.hpp).
//
// Note [The order of exchanges] All ranks call these collectives in the same order, because they have the same model and the
// same number of passes in a step (LoaderOptions::equal_passes). A forward pass runs in one thread. Autograd runs the nodes of
// a graph by descending sequence number, in one thread per device. The Reducer starts the all-reduce of a bucket when the
// bucket's last gradient is computed. So each rank starts the all-reduce after the same node of the graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <functional>

namespace ddprun::trainer {

class RankExchange {
 public:
  // Calls waits(true) before each wait for other ranks, and waits(false) after it. `waits` may be empty.
  RankExchange(c10::intrusive_ptr<c10d::ProcessGroup> group, std::function<void(bool)> waits);

  // Pass false if this rank has no samples and runs the pass with a stand-in (a sample of weight 0). Such a rank takes part in
  // the collectives, but adds nothing to the statistics.
  void count_own(bool counts) { counts_ = counts; }
  bool own_counts() const { return counts_; }

  // Gathers `own` from all ranks: row r of the result is the tensor of rank r. `own` must have the same size on all ranks.
  at::Tensor from_all(const at::Tensor& own);
  at::Tensor sum(const at::Tensor& own);
  // Returns the time for which the collectives have blocked the calling thread since the previous call to take_waited(). On a
  // GPU it is about 0, because only the device waits.
  std::chrono::nanoseconds take_waited();

 private:
  void wait(const c10::intrusive_ptr<c10d::Work>& work);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::function<void(bool)> waits_;
  bool counts_ = true;
  std::chrono::nanoseconds waited_{};
};

}  // namespace ddprun::trainer
