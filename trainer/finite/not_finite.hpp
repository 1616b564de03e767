// Finds NaN or infinite numbers in the data. A model's results for such data are usually NaN or infinite too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddprun::trainer {

struct NotFinite {
  std::vector<std::int64_t> index;  // index of the number in each dimension of the tensor
  double value = 0;
};

// Returns the first NaN or infinite number in a CPU tensor; nullopt if all numbers are finite.
std::optional<NotFinite> first_not_finite(const at::Tensor& numbers);

// Returns "nan", "inf" or "-inf".
std::string not_finite_text(double value);

// Returns a text for the position `index` in a sample: "" if the sample is a single number, " in column 3" if it is a row, else
// " at [0, 3]".
std::string place_text(std::span<const std::int64_t> index);

}  // namespace ddprun::trainer
