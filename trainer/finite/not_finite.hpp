// NaN or infinite numbers in the data. Every result that a model computes from one is NaN or infinite too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddprun::trainer {

struct NotFinite {
  std::vector<std::int64_t> index;  // index of the first one in each dimension
  double value = 0;
};

// The first one in a tensor on the CPU; nullopt if all are finite.
std::optional<NotFinite> first_not_finite(const at::Tensor& numbers);

// "nan", "inf" or "-inf".
std::string not_finite_text(double value);

// Place in a sample, such as " at [0, 3]". For a sample that is a row, " in column 3"; for a single number, "".
std::string place_text(std::span<const std::int64_t> index);

}  // namespace ddprun::trainer
