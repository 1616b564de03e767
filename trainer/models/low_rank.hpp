// Low-rank updates of linear layers (LoRA, Hu et al. 2021). A model's own weights are frozen. Each chosen layer learns a
// product of two small matrices, which is added to its weight. Names and formula are those of the peft package: its
// base_model.model.NAME.lora_A.weight is NAME.lora_A.weight here.
#pragma once

#include <torch/nn/module.h>

#include <string_view>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Adds updates to the linear layers that `config` names, and freezes every other parameter. Does nothing for rank 0. Uses the
// default CPU generator. Throws UsageError for a pattern that no linear layer matches. Also throws for a rank above the smaller
// side of an updated layer, before it allocates memory.
void add_low_rank(torch::nn::Module& model, const LoraConfig& config);

// Whether a parameter with that name belongs to an update.
bool is_of_update(std::string_view name);

}  // namespace ddprun::trainer
