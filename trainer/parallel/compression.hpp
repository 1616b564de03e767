// Sums gradients over the ranks with 16 bits per element, like Python's fp16_compress_hook and bf16_compress_hook. This halves
// the bytes on the network. DataParallel passes the hook to its Reducer.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <memory>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Returns null for kNone. Each bucket is rounded to 16 bits, divided by the number of ranks, summed, and converted back to 32
// bits.
std::unique_ptr<c10d::CommHookInterface> compression(DdpConfig::Compress compress,
                                                     c10::intrusive_ptr<c10d::ProcessGroup> group);

}  // namespace ddprun::trainer
