// What the batch norms of one model ask of the other ranks in a training step: everybody's figures, and sums. Each call is a
// collective of the process group that the gradients are summed in, so a group that is broken ends it at once
// (trainer/parallel/group_breaker.hpp).
//
// Note [The order of exchanges]
// All ranks make them in the same order. They have the same model and as many passes of a step (LoaderOptions::equal_passes);
// a forward pass is one thread, and autograd runs the nodes of a graph in the order of their sequence numbers, the last first,
// in one thread for each device. The Reducer's buckets start between them at the same place on each rank for the same reason:
// when the last of their gradients has come.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <functional>

namespace ddprun::trainer {

class RankExchange {
 public:
  // `waits` is told when a wait for other ranks begins (true) and when it is over; may be empty.
  RankExchange(c10::intrusive_ptr<c10d::ProcessGroup> group, std::function<void(bool)> waits);

  // False: what this rank puts through the model now is a stand-in for a share without samples. It takes part, and adds
  // nothing.
  void count_own(bool counts) { counts_ = counts; }
  bool own_counts() const { return counts_; }

  // One row for each rank, in their order. On the group's device.
  at::Tensor from_all(const at::Tensor& own);
  at::Tensor sum(const at::Tensor& own);
  // How long calls have waited since this was asked last. On a GPU only the device waits.
  std::chrono::nanoseconds take_waited();

 private:
  void wait(const c10::intrusive_ptr<c10d::Work>& work);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::function<void(bool)> waits_;
  bool counts_ = true;
  std::chrono::nanoseconds waited_{};
};

}  // namespace ddprun::trainer
