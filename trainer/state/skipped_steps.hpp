// Counts skipped steps. A step is skipped, and changes no weight, if its loss or a gradient is not finite. With "not_finite":
// "skip", every such step is skipped. With precision fp16, only steps in which the scaler detects an overflow are skipped. The
// counts are in TrainingState::values, so a checkpoint contains them and a replaced worker receives them. The training loop
// counts after the gradients are summed over the ranks, so all ranks have the same counts.
#pragma once

#include <cstdint>
#include <optional>

#include "common/config/train_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

// Adds the counts that this config needs, with the value 0.
void init_skipped_steps(StateValues& values, const TrainConfig& config);

// Call this once per step. `finite` is false if the step is skipped. `by_scaler` is true if the loss scaler skips the step.
// Such skips are normal while the scaler searches for a suitable scale, so skipped_in_a_row() does not count them.
void count_step(StateValues& values, bool finite, bool by_scaler);

// Returns the number of steps skipped since the start of the run; nullopt if this config never skips a step.
std::optional<std::int64_t> skipped_steps(const StateValues& values);

// Returns the number of consecutive skipped steps up to now. Steps that the scaler skipped are not included. The number is 0
// if the config does not have "not_finite": "skip".
std::int64_t skipped_in_a_row(const StateValues& values);

// Returns the number of consecutive skipped steps up to now, including steps that the scaler skipped.
std::int64_t steps_without_change(const StateValues& values);

// Returns true if the config has "not_finite": "skip".
bool skips_steps(const StateValues& values);

}  // namespace ddprun::trainer
