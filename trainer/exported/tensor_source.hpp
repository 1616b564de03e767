// Samples of "data": {"type": "tensors"}: a safetensors file for training and one for the test, with the tensors that an
// exported model takes by their names. The first dimension of each counts the samples; a sample weighs 1.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/exported/model_folder.hpp"

namespace ddprun::trainer {

// Of one file: the tensors that are asked for, in that order; others in it are left alone. `limit`: only the first so many
// samples; 0: all. The file is mapped: workers of one machine share its pages. Throws UsageError naming the file: missing, cut
// off, without one of the tensors, of another type or shape, tensors that do not have as many samples, fewer than `limit`.
std::shared_ptr<const Source> tensor_source(const std::filesystem::path& file, const std::vector<ExportedTensor>& wanted,
                                            std::int64_t limit, const char* limit_key);

// Of the training samples, from their file's header. Throws as tensor_source().
Description describe_tensors(const TrainConfig& config);

// Both files; what they must hold is what the model of `model.path` takes. Throws as tensor_source().
Sources read_tensor_sources(const TrainConfig& config);

}  // namespace ddprun::trainer
