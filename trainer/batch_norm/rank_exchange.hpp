// The exchanges of one model's batch norms with the other ranks in a training step: values of all ranks, and sums. Each call is
// a collective of the process group that sums the gradients. So breaking that group ends the call immediately
// (trainer/parallel/group_breaker.hpp).
//
// Note [The order of exchanges]
// All ranks make them in the same order. They have the same model and the same number of passes in a step
// (LoaderOptions::equal_passes). A forward pass runs in one thread. Autograd runs the nodes of a graph by descending sequence
// number, in one thread per device. The Reducer starts a bucket when the last of its gradients is computed. For the same reason
// that happens at the same place in this order on each rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <functional>

namespace ddprun::trainer {

class RankExchange {
 public:
  // `waits` is called with true when a wait for other ranks begins and with false when it ends; may be empty.
  RankExchange(c10::intrusive_ptr<c10d::ProcessGroup> group, std::function<void(bool)> waits);

  // False if the current samples are a stand-in for a share without samples. This rank then takes part in exchanges and adds
  // nothing.
  void count_own(bool counts) { counts_ = counts; }
  bool own_counts() const { return counts_; }

  // Returns one row per rank, in the order of ranks, on the group's device.
  at::Tensor from_all(const at::Tensor& own);
  at::Tensor sum(const at::Tensor& own);
  // Returns how long calls have waited since the last call of this function. On a GPU only the device waits.
  std::chrono::nanoseconds take_waited();

 private:
  void wait(const c10::intrusive_ptr<c10d::Work>& work);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::function<void(bool)> waits_;
  bool counts_ = true;
  std::chrono::nanoseconds waited_{};
};

}  // namespace ddprun::trainer
