// Numbers of the data that are NaN or infinite: whatever a model computes from one is no number either.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddprun::trainer {

struct NotFinite {
  std::vector<std::int64_t> index;  // of the first one, in each dimension
  double value = 0;
};

// Of a tensor on the CPU; nothing: there is none.
std::optional<NotFinite> first_not_finite(const at::Tensor& numbers);

// "nan", "inf" or "-inf".
std::string not_finite_text(double value);

// A place in a sample, such as " at [0, 3]"; of a sample that is a row " in column 3", of one number "".
std::string place_text(std::span<const std::int64_t> index);

}  // namespace ddprun::trainer
