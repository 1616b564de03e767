// The low-rank updates of a model that is saved (trainer/models/low_rank.hpp), as others want them: added to its weights, or
// alone in the peft package's form. export_weights.cpp calls it.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// The model without updates that computes the same: PEFT's merge, weight + (B A) * alpha / rank. Throws UsageError where the
// config is not of these weights.
std::vector<NamedTensor> with_updates_added(std::vector<NamedTensor> weights, const ModelConfig& config);

struct Adapter {
  std::vector<NamedTensor> tensors;  // base_model.model.NAME.lora_A.weight, ...
  nlohmann::ordered_json config;     // adapter_config.json
};
Adapter adapter_of(const std::vector<NamedTensor>& weights, const ModelConfig& config);

}  // namespace ddprun::trainer
