// Helpers for the samples of a data file: how many samples to use, and copies of some of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// Returns how many of the `found` samples in `file` to use: `requested`, or all if `requested` is 0. Throws UsageError if
// `found` is less than `requested`. `key` is the config key, and `samples` the kind of samples, for the message.
inline std::int64_t samples_to_use(std::int64_t requested, std::int64_t found, const char* key, const std::string& file,
                                   const std::string& samples = "samples") {
  if (requested <= found) return requested == 0 ? found : requested;
  throw UsageError(std::string(key) + " is " + std::to_string(requested) + ", but '" + file + "' holds only " +
                   std::to_string(found) + " " + samples + ". Lower " + key + ", or set it to 0 to use all of them.");
}

// Returns a tensor with copies of the samples with these indices. `first` points to sample 0 of a contiguous array. `sample`
// describes the shape and type of one sample.
inline at::Tensor copied_rows(const char* first, const TensorDescription& sample, std::span<const std::int64_t> samples) {
  std::vector<std::int64_t> sizes = sample.sizes;
  sizes.insert(sizes.begin(), std::ssize(samples));
  at::Tensor copy = at::empty(sizes, at::TensorOptions().dtype(sample.type));
  const std::size_t bytes = static_cast<std::size_t>(c10::multiply_integers(sample.sizes)) * c10::elementSize(sample.type);
  if (bytes == 0) return copy;
  auto* to = static_cast<char*>(copy.mutable_data_ptr());
  for (const std::int64_t number : samples) {
    std::memcpy(to, first + static_cast<std::size_t>(number) * bytes, bytes);
    to += bytes;
  }
  return copy;
}

}  // namespace ddprun::trainer
