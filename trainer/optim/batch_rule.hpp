// Scales optimizer.lr if batch_size differs from optimizer.lr_base_batch, the batch size for which the learning rate was
// chosen. batch_size is the global batch size, so the number of workers does not matter. A plateau schedule starts with the
// scaled learning rate; other schedules multiply the scaled rate by their factor. trainer/state/evaluation_rules.cpp calls
// these functions.
#pragma once

#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Returns the factor by which optimizer.lr_batch_rule scales the learning rate; 1 if no rule is set.
double batch_factor(const TrainConfig& config);

// Returns optimizer.lr times batch_factor().
double base_learning_rate(const TrainConfig& config);

// Returns a message for the user about the effect of the rule. Returns an empty string if no rule is set.
std::string batch_rule_text(const TrainConfig& config, int world);

}  // namespace ddprun::trainer
