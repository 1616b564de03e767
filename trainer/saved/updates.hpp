// Converts the low-rank updates of a saved model (trainer/models/low_rank.hpp) for other programs: merged into the weights, or
// alone in the format of the peft package. Called by export_weights.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// The equivalent model without updates: PEFT's merge, weight + (B A) * alpha / rank. Throws UsageError if the config does not
// match the weights.
std::vector<NamedTensor> with_updates_added(std::vector<NamedTensor> weights, const ModelConfig& config);

struct Adapter {
  std::vector<NamedTensor> tensors;  // base_model.model.NAME.lora_A.weight, ...
  nlohmann::ordered_json config;     // adapter_config.json
};
Adapter adapter_of(const std::vector<NamedTensor>& weights, const ModelConfig& config);

}  // namespace ddprun::trainer
