// DistributedDataParallel for a training loop of your own: c10d's Reducer, called in the same order as by the Python wrapper.
// Gradients are summed over the ranks while backward still runs. Afterwards .grad() holds their mean, the same on all ranks.
// Each summed pass copies rank 0's buffers, such as the statistics of batch norm, to all ranks.
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

// The same meaning as the arguments of torch.nn.parallel.DistributedDataParallel.
struct DataParallelOptions {
  double bucket_mb = 25;
  double first_bucket_mb = 1;
  bool find_unused_parameters = false;  // if false, every parameter must get a gradient in each summed pass
  bool static_graph = false;
};

// For the training thread only. One object for each model and group; destroy it before the group.
class DataParallel {
 public:
  // For the loop of a Job, where the ranks hold the same state already. The order of the gradient buckets is part of that
  // state, so an interrupted run sums in the same order when it resumes. Collective, as is the next constructor.
  DataParallel(State& state, const Group& group, const DataParallelOptions& options = {});
  // For any process group; null means a single process. All ranks begin with rank 0's parameters and buffers. Throws
  // ddprun::UsageError on all ranks if their models differ in names, shapes or types.
  DataParallel(torch::nn::Module& model, c10::intrusive_ptr<c10d::ProcessGroup> group, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Drops all gradients. Call before each step. The optimizer's zero_grad() does the same.
  void zero_grad();

  enum class Sum { kNow, kLater };
  // Calls `loss` once, which computes the mean loss of a micro-batch (a scalar). Backward runs through that loss, multiplied by
  // `weight`. With kLater nothing is exchanged, and gradients accumulate until a call with kNow. Use kNow for the last
  // micro-batch of a step; it is collective. Returns the unweighted loss without its graph. Throws ddprun::UsageError if the
  // loss is not a scalar. Throws std::runtime_error with the names of the parameters that got no gradient.
  at::Tensor backward(const std::function<at::Tensor()>& loss, double weight = 1, Sum sum = Sum::kNow);

  // Time for which backward() has waited for other ranks since the last call. 0 on a GPU, where only the device waits.
  std::chrono::nanoseconds take_waited();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
