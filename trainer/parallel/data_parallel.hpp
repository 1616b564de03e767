// Implements DistributedDataParallel for one module. It calls c10d::Reducer in the same order as Python's wrapper does
// (docs/internals/libtorch.md, "Order of calls"). A training step is
//
//     for each micro-batch:   sync = it is the last one
//       before_forward(sync);  output = model(input);  before_backward(output, sync);  loss.backward();  after_backward(sync)
//
// The gradients are all-reduced only in the micro-batch with sync, and overlap with its backward pass. With a single rank, all
// calls return immediately. The class is not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

using BucketOrder = std::vector<std::vector<std::int64_t>>;  // indices of parameters

// Returns the memory that the buckets need for the gradients of these parameters, for GroupRequest::bucket_bytes.
std::uint64_t bucket_memory(const std::vector<NamedTensor>& trained);

class DataParallel {
 public:
  // Source of the initial values. kFromRank0: all ranks take the parameters and buffers of rank 0, which are sent only if the
  // ranks differ. kEqual: the caller guarantees that all ranks already have the same values, so no values are compared or sent.
  enum class State { kFromRank0, kEqual };
  // This call is collective. Checks that all ranks have parameters of the same names, types and shapes, and creates the
  // Reducer. The Reducer uses `buckets` from a checkpoint (docs/internals/decisions/parallel/bucket-order.md). If `buckets` is
  // empty, it assigns parameters to buckets by size. Parameters that do not require gradients are excluded. A parameter with
  // two names is used only once.
  DataParallel(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
               c10::intrusive_ptr<c10d::ProcessGroup> group, const DdpConfig& config, const BucketOrder& buckets = {},
               State state = State::kFromRank0);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  void before_forward(bool sync);
  void before_backward(const at::Tensor& output, bool sync);
  // Checks that all gradients are reduced, and then broadcasts the buffers of rank 0, so that all ranks have the same buffers
  // at the end of the step. Throws an error if some parameters got no gradient, because the model did not use them and
  // find_unused_parameters is off. The error names the parameters. It is a UsageError in the first step, and a
  // std::runtime_error later.
  void after_backward(bool sync);
  // Returns the time for which backward passes have waited for other ranks since the previous call. Each wait is measured from
  // the last gradient of this rank to the end of the step's communication. In shared memory, it is the time in collectives.
  // Returns zero on a GPU, where the CPU does not wait.
  std::chrono::nanoseconds take_waited();
  // Removes the gradients instead of setting them to zero, for the reason in the note [Gradients are removed, not set to zero]
  // in data_parallel.cpp.
  void zero_grad();
  // Returns the current assignment of parameters to buckets, for checkpoints. The result is empty if there is only one rank,
  // before the end of the first step, or if buckets are never rebuilt (find_unused_parameters).
  BucketOrder bucket_order() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
