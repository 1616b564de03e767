// A digest of tensors' bytes. Ranks compare digests to find out whether they have the same state, without sending the state.
// DataParallel calls it once at start, trainer/state/state_comparison.cpp during training.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddprun::trainer {

// XXH3-128 over the bytes of all tensors in order; the most significant half comes first. Tensors on a device are copied to the
// CPU one by one. The digest does not cover shapes, types and the boundaries between tensors.
std::vector<std::int64_t> state_digest(const std::vector<at::Tensor>& tensors);

}  // namespace ddprun::trainer
