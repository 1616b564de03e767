// The learning rate's factor at a step: a pure function, so there is no state to save. The training loop multiplies
// optimizer.lr by it. Schedules: constant, step, cosine, linear, polynomial, warmup-stable-decay, one-cycle; their formulas
// stand in the implementation.
#pragma once

#include <cstdint>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Factor for optimizer step `step` (counted from 0) of `total_steps`; `steps_per_epoch` serves the step schedule.
double learning_rate_factor(const ScheduleConfig& config, std::int64_t step, std::int64_t steps_per_epoch,
                            std::int64_t total_steps);

}  // namespace ddprun::trainer
