// A communication hook that all-reduces gradients with 16 bits per element, which halves the bytes on the network. It works
// like Python's fp16_compress_hook and bf16_compress_hook. DataParallel registers the hook with its Reducer.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <memory>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Returns the hook, or null for kNone. The hook converts each bucket to 16 bits, divides it by the number of ranks, sums it
// over the ranks, and converts the result to 32 bits.
std::unique_ptr<c10d::CommHookInterface> compression(DdpConfig::Compress compress,
                                                     c10::intrusive_ptr<c10d::ProcessGroup> group);

}  // namespace ddprun::trainer
