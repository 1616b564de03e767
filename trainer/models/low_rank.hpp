// Low-rank updates of linear layers (LoRA, Hu et al. 2021). The weights of the model are frozen. Instead, each selected layer
// trains two small matrices, whose product is added to the weight. So a layer with n inputs and m outputs trains rank * (n +
// m) numbers instead of n * m. The formula and the parameter names are the same as in the peft package, but the names do not
// have its prefix "base_model.model.". For example, a parameter is called NAME.lora_A.weight.
#pragma once

#include <torch/nn/module.h>

#include <string_view>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Adds low-rank updates to the linear layers that `config` selects, and freezes every other parameter. Does nothing if
// config.rank is 0. The initial values come from the default CPU generator. Throws UsageError if no linear layer matches a
// pattern, or if the rank exceeds the number of inputs or of outputs of a layer. The rank is checked before memory is
// allocated.
void add_low_rank(torch::nn::Module& model, const LoraConfig& config);

// Returns true if a parameter with this name belongs to a low-rank update.
bool is_lora_parameter(std::string_view name);

}  // namespace ddprun::trainer
