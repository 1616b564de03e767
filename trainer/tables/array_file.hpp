// Arrays of numbers from files: NumPy's .npy (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html), or a
// tensor of a safetensors file. The first dimension counts the samples.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// What the header of a file says of an array.
struct ArrayHeader {
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::int64_t begin = 0;  // of its numbers, in bytes
};

// "FILE.npy", or "FILE.safetensors:NAME". Throws UsageError, naming the file: missing, neither, without that tensor (lists
// what there is), a type that is no number (or big-endian), in Fortran's order, shorter or longer than its shape says.
ArrayHeader read_array_header(const std::filesystem::path& folder, const std::string& what);

// The array itself; as long as a tensor of it lives, the file is mapped. Not to be written to.
at::Tensor read_array(const std::filesystem::path& folder, const std::string& what);

// Of a sample, from the headers of the training files.
Description describe_arrays(const DataConfig& config);

// Inputs become float32, targets int64 (data.predict "class") or float32; those of one dimension are one number a sample.
// Throws UsageError as read_array(): other numbers of samples, classes that are no integers or out of range, numbers that are
// NaN or infinite as float32 (name the sample, and its column).
Sources read_arrays(const DataConfig& config);

}  // namespace ddprun::trainer
