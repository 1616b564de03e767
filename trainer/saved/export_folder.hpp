// Exports a language model as the folder of a Hugging Face model, which from_pretrained() of transformers loads.
#pragma once

#include <filesystem>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Writes model.safetensors with the content `weights`, config.json, and copies of the tokenizer's files. If the run started
// from a Hugging Face model, also copies its generation_config.json. `source` is the folder of that model, or empty.
// config.json is written last, so a folder with config.json is complete. Returns the names of the files for the user. Throws
// UsageError.
std::string export_folder(const std::filesystem::path& to, const std::string& weights, const TrainConfig& config,
                          const std::filesystem::path& source);

// Returns the folder of the Hugging Face model from which a run with this config started. Returns an empty path if the run
// started without such a model, or if the folder does not exist any more.
std::filesystem::path pretrained_source(const TrainConfig& config);

}  // namespace ddprun::trainer
