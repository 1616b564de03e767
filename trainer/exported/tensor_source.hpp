// Samples of "data": {"type": "tensors"}: one safetensors file for training and one for the test. They hold the tensors that an
// exported model takes, under the model's names. The first dimension of each tensor counts the samples; a sample has weight 1.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/exported/model_folder.hpp"

namespace ddprun::trainer {

// Returns the wanted tensors of one file, in that order; other tensors are ignored. `limit`: only that number of samples, from
// the first; 0: all. The file is mapped, so workers of one machine share its pages. Throws UsageError naming the file: missing,
// cut off, without one of the tensors, of another type or shape, with different numbers of samples, fewer than `limit`.
std::shared_ptr<const Source> tensor_source(const std::filesystem::path& file, const std::vector<ExportedTensor>& wanted,
                                            std::int64_t limit, const char* limit_key);

// Describes the training samples, from their file's header. Throws as tensor_source().
Description describe_tensors(const TrainConfig& config);

// Opens both files, with the tensors that the model of `model.path` takes. Throws as tensor_source().
Sources read_tensor_sources(const TrainConfig& config);

}  // namespace ddprun::trainer
