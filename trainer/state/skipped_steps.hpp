// Counts steps that change nothing because their loss or a gradient is not finite. With "not_finite": "skip" these are all such
// steps; with precision fp16 those that its scaler skips. The counts are values of the state, so a checkpoint contains them and
// a replaced worker receives them. Gradients are already summed at that point, so all ranks count the same.
#pragma once

#include <cstdint>
#include <optional>

#include "common/config/train_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

void begin_skipped_steps(StateValues& values, const TrainConfig& config);

// Call once per step. `by_scaler`: the scaler caused the skip to find its scale, which is no sign of a problem.
void count_step(StateValues& values, bool finite, bool by_scaler);

// Skipped steps since the run began; nullopt if this config never skips a step.
std::optional<std::int64_t> skipped_steps(const StateValues& values);

// Consecutive skipped steps, without those of the scaler; 0 if the config skips none.
std::int64_t skipped_in_a_row(const StateValues& values);

// Consecutive steps without a change, whatever the reason; 0 if none is skipped.
std::int64_t steps_without_change(const StateValues& values);

// Whether the config skips every step that is not finite.
bool skips_steps(const StateValues& values);

}  // namespace ddprun::trainer
