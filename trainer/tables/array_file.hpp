// Reads arrays of numbers from files. An array is a NumPy file (.npy,
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html) or a tensor of a safetensors file. The first
// dimension is the number of samples.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// The type and shape of an array, from the header of its file.
struct ArrayHeader {
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::int64_t begin = 0;  // offset of the array's data in bytes
};

// Reads the header of the array that `what` names: "FILE.npy" or "FILE.safetensors:NAME", in `folder`. Throws UsageError with
// the file's name if the file is missing or damaged. If the file lacks the tensor, the message lists the tensors in it. Also
// throws UsageError for big-endian elements, elements that are not numbers, Fortran order, and a length that does not match the
// shape.
ArrayHeader read_array_header(const std::filesystem::path& folder, const std::string& what);

// Reads an array; `what` is as in read_array_header(). The result uses the memory-mapped file as its memory, so do not write to
// it.
at::Tensor read_array(const std::filesystem::path& folder, const std::string& what);

// Describes a sample. Reads only the headers of the training files.
Description describe_arrays(const DataConfig& config);

// Reads the training and test samples. Inputs become float32. Targets become int64 if data.predict is "class", and float32
// otherwise. A one-dimensional array has one number per sample. Throws the errors of read_array(). Also throws UsageError if
// inputs and targets have different numbers of samples, if a class is out of range, or if a number is NaN or infinite in
// float32. The message names the sample and its column.
Sources read_arrays(const DataConfig& config);

}  // namespace ddprun::trainer
