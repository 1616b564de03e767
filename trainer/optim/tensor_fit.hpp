// Compares saved tensors with those of a model or an optimizer, by name and shape, and lists all differences.
#pragma once

#include <string>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Empty if they fit. Otherwise "2 tensors are missing: a, b; 1 is unexpected: c; 1 has another shape: d [3] instead of [4]",
// with the first twenty of each kind.
std::string misfit(const std::vector<NamedTensor>& needed, const std::vector<NamedTensor>& saved);

}  // namespace ddprun::trainer
