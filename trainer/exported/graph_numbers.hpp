// What a graph may calculate with numbers, such as the size of its batch: Python's operators of the same names (KNOWN in
// python/ddprun/graph.py).
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

struct Calculation {
  std::string_view name;
  std::size_t arguments;
  // Throws std::domain_error for a division by 0, and c10::Error when an argument is no number.
  c10::IValue (*function)(const std::vector<c10::IValue>& of);
};

// Null when there is none of that name.
const Calculation* find_calculation(std::string_view name);

}  // namespace ddprun::trainer
