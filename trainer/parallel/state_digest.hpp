// A digest of the bytes of tensors. Ranks compare digests to check whether their states are equal, so that they need not send
// the states. DataParallel calls state_digest() once at the start, and trainer/state/state_comparison.cpp calls it during
// training.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

// Returns the XXH3-128 hash of the bytes of all tensors in order. The hash is returned as two numbers, the most significant
// half first. Tensors on a GPU are copied to the CPU one by one. The hash does not depend on shapes, on types or on the
// boundaries between tensors.
std::vector<std::int64_t> state_digest(const std::vector<at::Tensor>& tensors);
// Returns the same hash of a text.
std::vector<std::int64_t> text_digest(std::string_view text);

}  // namespace ddprun::trainer
