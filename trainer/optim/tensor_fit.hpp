// Compares saved tensors with the tensors of a model or an optimizer, by name and shape. One message lists all differences, so
// that the user need not find them one by one.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Returns an empty string if names and shapes are equal. Otherwise returns "2 tensors are missing: a, b; 1 is unexpected: c; 1
// has a different shape: d [3] instead of [4]", with at most twenty names of each kind.
std::string misfit(const std::vector<NamedTensor>& needed, const std::vector<NamedTensor>& saved);

// Returns a map from names to tensors. `tensors` must outlive the map.
std::unordered_map<std::string_view, const at::Tensor*> by_name(const std::vector<NamedTensor>& tensors);

// Copies the saved tensors into the targets of the same names. Call this only if misfit() returns an empty string.
void copy_by_name(const std::vector<NamedTensor>& targets, const std::vector<NamedTensor>& saved);

}  // namespace ddprun::trainer
