// Reads the samples of "data": {"type": "tensors"}: one safetensors file for training and one for the test set. Each file
// contains the input tensors of an exported model, under the model's names. The first dimension of each tensor is the number of
// samples. Each sample has weight 1.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/exported/model_folder.hpp"

namespace ddprun::trainer {

// Returns the tensors of one file in the order of `wanted`; other tensors of the file are ignored. `limit` is the number of
// samples to use from the start of the file; 0 means all. The file is mapped into memory, so the workers on a machine share
// its pages. Throws UsageError with the file's name if the file is missing or truncated, or if it lacks a wanted tensor. Also
// throws it if a tensor has a different type or shape, if tensors have different numbers of samples, or if there are fewer
// than `limit` samples.
std::shared_ptr<const Source> tensor_source(const std::filesystem::path& file, const std::vector<ExportedTensor>& wanted,
                                            std::int64_t limit, const char* limit_key);

// Describes the training samples. Reads only the header of their file. Throws the errors of tensor_source().
Description describe_tensors(const TrainConfig& config);

// Opens the training and the test file, with the input tensors of the model in `model.path`. Throws the errors of
// tensor_source().
Sources read_tensor_sources(const TrainConfig& config);

}  // namespace ddprun::trainer
