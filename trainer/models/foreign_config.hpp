// Compares a config.json next to weights with the model of this run.
//
// Tensor shapes do not determine all that a model computes. They do not show the number of heads, the base of rotary positions,
// the epsilon of a norm, or an activation. Families share tensor names as well: Gemma and Granite use Llama's names and compute
// something else. Weights that are loaded into the wrong model train without an error, only with a worse loss. So a config.json
// of Hugging Face (model_type) or timm (architecture), or of the run that wrote a checkpoint, is compared key by key.
//
// Pure. Called by trainer/state/initial_weights.cpp, which finds and reads the file. Only models whose weights are commonly
// exchanged are compared: gpt, llama, vit and the resnets. A program with its own model has other keys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// True if that JSON is a config of Hugging Face or timm.
bool is_foreign_config(const nlohmann::json& value);

// Returns each key that contradicts `config`, with both values, or the name of a family that ddprun lacks. Empty if all agree.
std::string foreign_contradictions(const nlohmann::json& theirs, const TrainConfig& config);

// The same for the config of another run of ddptrain.
std::string contradictions(const ModelConfig& theirs, const ModelConfig& ours);

// The keys of this model that no shape shows, with their values: "n_head 12, rope_theta 10000". Empty if there are none.
std::string keys_without_a_shape(const ModelConfig& config);

}  // namespace ddprun::trainer
