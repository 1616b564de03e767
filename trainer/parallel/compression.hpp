// Gradients summed over the ranks with 16 bits each, as Python's fp16_compress_hook and bf16_compress_hook: half the bytes on
// the network. DataParallel gives the hook to its Reducer.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <memory>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Null for kNone. Each bucket is rounded, divided by the number of ranks, summed, and put back with 32 bits.
std::unique_ptr<c10d::CommHookInterface> compression(DdpConfig::Compress compress,
                                                     c10::intrusive_ptr<c10d::ProcessGroup> group);

}  // namespace ddprun::trainer
