// Arrays of numbers from files: NumPy's .npy (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html), or a
// tensor of a safetensors file. The first dimension is the number of samples.
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

// An array as described by the header of its file.
struct ArrayHeader {
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::int64_t begin = 0;  // offset of the array's data in bytes
};

// `what`: "FILE.npy", or "FILE.safetensors:NAME". Throws UsageError with the file's name: the file is missing, has neither
// format, or lacks that tensor (lists those that exist). Also: its type is not a number or is big-endian, it has Fortran order,
// or its length does not match its shape.
ArrayHeader read_array_header(const std::filesystem::path& folder, const std::string& what);

// The array itself. The file stays mapped while a tensor of it lives. Do not write to it.
at::Tensor read_array(const std::filesystem::path& folder, const std::string& what);

// Describes a sample from the headers of the training files.
Description describe_arrays(const DataConfig& config);

// Inputs become float32, targets int64 (data.predict "class") or float32. A one-dimensional array has one number per sample.
// Throws UsageError as read_array() does, and if the numbers of samples differ. Also throws it for a class that is not an
// integer or out of range, and for a number that is NaN or infinite as float32. These messages name the sample and its column.
Sources read_arrays(const DataConfig& config);

}  // namespace ddprun::trainer
