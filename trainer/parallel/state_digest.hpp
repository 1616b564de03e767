// A digest of tensors' bytes, by which ranks find out whether they hold the same state without sending it to each other.
// DataParallel calls it once at start, trainer/state/state_comparison.cpp while training.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddprun::trainer {

// XXH3-128 over the bytes of all tensors in order, most significant half first. Those on a device are copied to the CPU one by
// one. Shapes, types and the borders between tensors are not in it.
std::vector<std::int64_t> state_digest(const std::vector<at::Tensor>& tensors);

}  // namespace ddprun::trainer
