// Data-parallel training for a custom training loop. The class calls c10d's Reducer in the same order as PyTorch's
// DistributedDataParallel. Gradients are summed over the ranks while the backward pass is still running. After the backward
// pass, .grad() contains the mean over the ranks, which is equal on all ranks. Each pass that sums gradients also copies the
// buffers of rank 0, such as the statistics of batch norm, to all ranks.
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

// The options have the same meaning as the arguments of torch.nn.parallel.DistributedDataParallel.
struct DataParallelOptions {
  double bucket_mb = 25;
  double first_bucket_mb = 1;
  bool find_unused_parameters = false;  // if false, every parameter must get a gradient in each pass that sums gradients
  bool static_graph = false;
};

// Only the training thread may use this class. Create one object for each model and process group, and destroy it before the
// group.
class DataParallel {
 public:
  // Use this constructor in the training loop of a Job, where all ranks already have the same state. The state includes the
  // order of the gradient buckets, so a resumed run sums gradients in the same order as before. Both constructors are
  // collective.
  DataParallel(State& state, const Group& group, const DataParallelOptions& options = {});
  // Use this constructor with any process group. If `group` is null, there is a single process. The constructor broadcasts the
  // parameters and buffers of rank 0 to all ranks. Throws ddprun::UsageError on all ranks if their models differ in names,
  // shapes or types.
  DataParallel(torch::nn::Module& model, c10::intrusive_ptr<c10d::ProcessGroup> group, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Resets all gradients. Call this or the optimizer's zero_grad() before each step.
  void zero_grad();

  enum class Sum { kNow, kLater };
  // Calls `loss` once. `loss` must return the mean loss of a micro-batch, a scalar. The backward pass runs on this loss times
  // `weight`. Pass kNow for the last micro-batch of a step. The call is then collective, and sums the gradients over the
  // ranks. With kLater, gradients are only added up locally. Returns the loss without `weight`, detached from the autograd
  // graph. Throws ddprun::UsageError if the loss is not a scalar. Throws a std::runtime_error that names the parameters if
  // parameters got no gradient.
  at::Tensor backward(const std::function<at::Tensor()>& loss, double weight = 1, Sum sum = Sum::kNow);

  // Returns how long backward() has waited for other ranks since the previous call to take_waited(). On a GPU the result is
  // always 0, because only the device waits.
  std::chrono::nanoseconds take_waited();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
