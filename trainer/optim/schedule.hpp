// Computes the factor by which the training loop multiplies the learning rate in a step. The factor depends only on the config
// and the step, so checkpoints contain no state of a scheduler. schedule.cpp has the formulas of the schedules: constant, step,
// cosine, linear, polynomial, warmup-stable-decay, one-cycle.
#pragma once

#include <cstdint>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Returns the factor for optimizer step `step` (counted from 0) of `total_steps`. Only the step schedule uses
// `steps_per_epoch`.
double learning_rate_factor(const ScheduleConfig& config, std::int64_t step, std::int64_t steps_per_epoch,
                            std::int64_t total_steps);

}  // namespace ddprun::trainer
