// Adapts the learning rate to a batch size other than the one for which optimizer.lr is meant. batch_size is that of the whole
// job, so the number of workers does not matter. trainer/state/evaluation_rules.cpp uses this rate. A plateau begins with it,
// and a schedule multiplies it by its factor.
#pragma once

#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Returns the factor of optimizer.lr_batch_rule; 1 without a rule.
double batch_factor(const TrainConfig& config);

// Returns optimizer.lr times batch_factor().
double base_learning_rate(const TrainConfig& config);

// Returns a message about the effect of the rule; empty without a rule.
std::string batch_rule_text(const TrainConfig& config, int world);

}  // namespace ddprun::trainer
