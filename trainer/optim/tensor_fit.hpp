// Whether saved tensors are those that a model or an optimizer has, by name and shape, and all that keeps them from it.
#pragma once

#include <string>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Empty when they fit. Else "2 tensors are missing: a, b; 1 is unexpected: c; 1 has another shape: d [3] instead of [4]", of
// each kind the first twenty.
std::string misfit(const std::vector<NamedTensor>& needed, const std::vector<NamedTensor>& saved);

}  // namespace ddprun::trainer
