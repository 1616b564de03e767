// The scalar calculations that a graph may contain, for example with the batch size. They give the same results as the Python
// operators of the same names (KNOWN in python/ddprun/graph.py).
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

struct Calculation {
  std::string_view name;
  std::size_t arguments;
  // Throws std::domain_error for a division by 0, and c10::Error if an argument is not a number.
  c10::IValue (*function)(const std::vector<c10::IValue>& of);
};

// Returns null if `name` is unknown.
const Calculation* find_calculation(std::string_view name);

}  // namespace ddprun::trainer
