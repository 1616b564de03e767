// Compares the config.json next to pretrained weights with the model of this run.
//
// The problem. A check of tensor names and shapes may accept the weights of a different model. Shapes do not contain the number
// of heads, the base of rotary positions, the epsilon of a norm, or the activation. Different models can also have the same
// tensor names: Gemma and Granite use Llama's names, but compute something else. Weights in the wrong model cause no error, but
// a worse loss.
//
// The idea. Weights are usually stored with a config.json of Hugging Face (it has the key model_type), of timm (architecture),
// or of the run that wrote a checkpoint. Its keys are compared with the config of this run, and any difference is reported.
//
// Only models whose weights are commonly exchanged are compared: gpt, llama, vit and the resnets. The models of custom
// programs have different keys. trainer/state/initial_weights.cpp finds and reads the file, and calls these functions. The
// code is pure: no I/O, no clock.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Returns true if the JSON value is a config of Hugging Face or timm.
bool is_foreign_config(const nlohmann::json& value);

// Returns a text with each key that differs from `config`, and both values. If the file belongs to a model that ddprun lacks,
// the text names that model. Returns an empty string if nothing differs.
std::string foreign_contradictions(const nlohmann::json& theirs, const TrainConfig& config);

// Works like foreign_contradictions(), but for the config of another ddptrain run.
std::string contradictions(const ModelConfig& theirs, const ModelConfig& ours);

// Returns the keys of this model that cannot be derived from tensor shapes, with their values: "n_head 12, rope_theta 10000".
// Returns an empty string if there are none.
std::string keys_without_a_shape(const ModelConfig& config);

}  // namespace ddprun::trainer
