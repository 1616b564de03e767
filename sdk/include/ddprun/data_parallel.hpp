// DistributedDataParallel for a loop of your own: c10d's Reducer, with the order of calls of Python's wrapper. Gradients are
// summed over the ranks while backward still runs, and their mean is in .grad() afterwards, the same on all ranks. Buffers
// (batch norm's statistics) are rank 0's after each summed pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <functional>
#include <memory>

namespace torch::nn {
class Module;
}

namespace ddprun {

class Group;
class State;

// As the arguments of torch.nn.parallel.DistributedDataParallel.
struct DataParallelOptions {
  double bucket_mb = 25;
  double first_bucket_mb = 1;
  bool find_unused_parameters = false;  // else every parameter has to get a gradient in each summed pass
  bool static_graph = false;
};

// The training thread's alone. One for a model and a group; ends before the group does.
class DataParallel {
 public:
  // For a Job's loop: ranks hold the same state already, and the order of gradients' buckets is part of it, so that a run that
  // was interrupted adds up in the same order. Collective, as the next.
  DataParallel(State& state, const Group& group, const DataParallelOptions& options = {});
  // For any process group; null: a single process. All ranks begin with rank 0's parameters and buffers. Throws
  // ddprun::UsageError on all ranks when their models differ in names, shapes or types.
  DataParallel(torch::nn::Module& model, c10::intrusive_ptr<c10d::ProcessGroup> group, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Drops all gradients; before each step. The optimizer's zero_grad() does the same.
  void zero_grad();

  enum class Sum { kNow, kLater };
  // `loss` is called once, computes a micro-batch's mean loss (a scalar), and backward runs through it, multiplied by `weight`.
  // With kLater nothing is exchanged: gradients add up until a call with kNow, the last micro-batch of the step, which is
  // collective. Returns the loss as it was, without its graph. Throws ddprun::UsageError for a loss that is no scalar, and
  // std::runtime_error naming the parameters that got no gradient.
  at::Tensor backward(const std::function<at::Tensor()>& loss, double weight = 1, Sum sum = Sum::kNow);

  // How long backward() has waited for other ranks since the last call. 0 on a GPU, where only the device waits.
  std::chrono::nanoseconds take_waited();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
