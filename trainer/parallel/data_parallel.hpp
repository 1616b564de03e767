// DistributedDataParallel for one module: c10d::Reducer with every step of Python's wrapper in its order (LIBTORCH.md, "order
// of calls"). A training step is
//
//     for each micro-batch:   sync = it is the last one
//       before_forward(sync);  output = model(input);  before_backward(output, sync);  loss.backward();  after_backward(sync)
//
// Works for a world of one as well, where it does nothing that costs time. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

using BucketOrder = std::vector<std::vector<std::int64_t>>;  // indices of parameters

class DataParallel {
 public:
  // What all start from: rank 0's parameters and buffers, which are sent where they differ, or what they hold, which is
  // known to be equal.
  enum class State { kRank0s, kEqual };
  // Verifies that all ranks have the same parameters, and makes the Reducer with `buckets` when given (a checkpoint's:
  // decision 19), else by size. Parameters that don't require gradients are left out; shared ones count once.
  DataParallel(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
               c10::intrusive_ptr<c10d::ProcessGroup> group, const DdpConfig& config, const BucketOrder& buckets = {},
               State state = State::kRank0s);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  void before_forward(bool sync);
  void before_backward(const at::Tensor& output, bool sync);
  // Throws std::runtime_error that names the parameters without a gradient when the backward didn't finish its all-reduce
  // (find_unused_parameters is off and some were not used). Then broadcasts rank 0's buffers, so they are the same everywhere
  // when the step counts as done.
  void after_backward(bool sync);
  // How long backward passes have waited for other ranks, since the last call: from the last gradient of this rank to the end
  // of the step's exchange. Zero on a GPU, where only the device waits.
  std::chrono::nanoseconds take_waited();
  // Drops the gradients, also those that are views of buckets (data_parallel.cpp says why).
  void zero_grad();
  // The order that is in use: to be saved with the checkpoint. Empty for a world of one, before the first synced step, and
  // where buckets are never rebuilt (find_unused_parameters).
  BucketOrder bucket_order() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
