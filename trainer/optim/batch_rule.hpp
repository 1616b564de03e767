// The learning rate for another batch size than the one that optimizer.lr is meant for. A batch is the whole job's
// (batch_size), so the number of workers changes nothing of it. trainer/state/evaluation_rules.cpp takes the rate from here; a
// plateau begins with it, and a schedule's factor comes on top.
#pragma once

#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// By optimizer.lr_batch_rule; 1 without one.
double batch_factor(const TrainConfig& config);

// optimizer.lr times that.
double base_learning_rate(const TrainConfig& config);

// What the rule makes of the learning rate, for people; empty without one.
std::string batch_rule_text(const TrainConfig& config, int world);

}  // namespace ddprun::trainer
