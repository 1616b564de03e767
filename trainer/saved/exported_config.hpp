// The config.json with which transformers loads an exported language model. The code is pure: export_folder.cpp writes the
// file.
#pragma once

#include <nlohmann/json.hpp>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Returns the config.json for the model in `config`, which is a gpt or a llama. `source` is the config.json of the model from
// which the run started, or null. If `source` describes the same model, the result keeps the settings in `source`, such as the
// numbers of special tokens. Throws UsageError if no class of transformers computes the model.
nlohmann::ordered_json exported_config(const TrainConfig& config, const nlohmann::ordered_json& source);

}  // namespace ddprun::trainer
