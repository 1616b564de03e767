// The config.json with which transformers loads an exported language model. Pure; export_folder.cpp writes the file.
#pragma once

#include <nlohmann/json.hpp>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Returns the config.json of the model of `config`, a gpt or a llama. `source` is the config.json of the model from which the
// run started, or null. If it describes the same model, the result keeps its settings, such as the numbers of special tokens.
// Throws UsageError if no class of transformers computes the model.
nlohmann::ordered_json exported_config(const TrainConfig& config, const nlohmann::ordered_json& source);

}  // namespace ddprun::trainer
