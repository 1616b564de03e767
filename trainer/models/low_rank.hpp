// Low-rank updates of linear layers (LoRA, Hu et al. 2021): a model's own weights stay as they are, and each chosen layer
// learns the product of two small matrices that is added to its own. Names and formula are those of the peft package: what it
// calls base_model.model.NAME.lora_A.weight is NAME.lora_A.weight here.
#pragma once

#include <torch/nn/module.h>

#include <string_view>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Adds updates to the linear layers that `config` names, and freezes every other parameter. Nothing for rank 0. Draws from the
// default CPU generator. Throws UsageError for a pattern that no linear layer matches, and for a rank above the smaller side of
// a layer that gets an update, before memory is taken for it.
void add_low_rank(torch::nn::Module& model, const LoraConfig& config);

// Whether a parameter of that name is one of an update.
bool is_of_update(std::string_view name);

}  // namespace ddprun::trainer
