// Steps that change nothing, since their loss or a gradient is not finite: with "not_finite": "skip" all of them, and with
// precision fp16 those that its scaler skips. They are counted in values of the state, so that a checkpoint has the counts and
// a replaced worker gets them. Gradients are the same on all ranks by then, so all count alike.
#pragma once

#include <cstdint>
#include <optional>

#include "common/config/train_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

void begin_skipped_steps(StateValues& values, const TrainConfig& config);

// Once for each step. `by_scaler`: it looks for its scale, which says nothing of how training fares.
void count_step(StateValues& values, bool finite, bool by_scaler);

// Since the run began; nothing where none is skipped, whatever its numbers.
std::optional<std::int64_t> skipped_steps(const StateValues& values);

// Since a step that changed something, without the scaler's; 0 where the config skips none.
std::int64_t skipped_in_a_row(const StateValues& values);

// Steps since one that changed something, whatever skipped them; 0 where none is skipped.
std::int64_t steps_without_change(const StateValues& values);

// Whether the config skips steps, for whatever reason one is not finite.
bool skips_steps(const StateValues& values);

}  // namespace ddprun::trainer
