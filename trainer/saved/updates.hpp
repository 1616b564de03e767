// Converts the low-rank updates of a saved model (trainer/models/low_rank.hpp) for other programs. They are either added to
// the weights, or become a separate adapter in the format of the peft package. export_weights.cpp calls these functions.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Returns the weights of an equivalent model without low-rank updates. Each updated weight becomes weight + (B A) * alpha /
// rank, as in PEFT's merge. Throws UsageError if the config has no model.lora, or if a tensor of an update is missing.
std::vector<NamedTensor> with_updates_added(std::vector<NamedTensor> weights, const ModelConfig& config);

struct Adapter {
  std::vector<NamedTensor> tensors;  // the tensors with PEFT's names: base_model.model.NAME.lora_A.weight, ...
  nlohmann::ordered_json config;     // the content of adapter_config.json
};
// Returns only the low-rank updates, and the content of the adapter_config.json for them.
Adapter adapter_of(const std::vector<NamedTensor>& weights, const ModelConfig& config);

}  // namespace ddprun::trainer
