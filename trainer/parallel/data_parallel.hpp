// DistributedDataParallel for one module: c10d::Reducer with every step of Python's wrapper in the same order (LIBTORCH.md,
// "order of calls"). A training step is
//
//     for each micro-batch:   sync = it is the last one
//       before_forward(sync);  output = model(input);  before_backward(output, sync);  loss.backward();  after_backward(sync)
//
// Also works in a world of one, where it costs no time. Not thread-safe.
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
  // The initial state of all ranks. kRank0s: rank 0's parameters and buffers, which are sent if the ranks differ. kEqual: the
  // state of each rank, which is known to be equal.
  enum class State { kRank0s, kEqual };
  // Verifies that all ranks have the same parameters, and makes the Reducer. It uses `buckets` from a checkpoint (decision 19),
  // or assigns them by size if empty. Parameters that don't require gradients are left out; shared ones count once.
  DataParallel(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
               c10::intrusive_ptr<c10d::ProcessGroup> group, const DdpConfig& config, const BucketOrder& buckets = {},
               State state = State::kRank0s);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  void before_forward(bool sync);
  void before_backward(const at::Tensor& output, bool sync);
  // Throws std::runtime_error that names the parameters without a gradient if the backward pass didn't finish its all-reduce
  // (find_unused_parameters is off and some were not used). Then broadcasts rank 0's buffers, so that all ranks have the same
  // ones when the step counts as done.
  void after_backward(bool sync);
  // Returns the time that backward passes have waited for other ranks since the last call. It is measured from the last
  // gradient of this rank to the end of the step's exchange. Zero on a GPU, where only the device waits.
  std::chrono::nanoseconds take_waited();
  // Drops the gradients, including views of buckets (see the note in data_parallel.cpp).
  void zero_grad();
  // Returns the current order, which the checkpoint saves. Empty in a world of one, before the first synced step, and if
  // buckets are never rebuilt (find_unused_parameters).
  BucketOrder bucket_order() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
