// Dynamic loss scaling with "precision": "fp16". The scale is in TrainingState::values, so a checkpoint contains it and a
// replaced worker receives it. The training loop updates the scale in each step, after the gradients are summed over the ranks.
// Since all ranks then have the same gradients, they compute the same scale. With other precisions the scale is always 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

// Sets the initial scale if the precision is fp16; changes nothing otherwise.
void init_loss_scale(StateValues& values, const TrainConfig& config);

// Returns the factor by which the loss is multiplied before the backward pass; 1 if the precision is not fp16.
double loss_scale(const StateValues& values, const TrainConfig& config);

// Returns true if a loss or gradient that is not finite may be caused by an overflow of float16. The scaler then skips the
// step and lowers the scale. Returns false if the scale is below 1, because the range of float16 can then no longer be the
// cause.
bool is_scaler_overflow(const StateValues& values, const TrainConfig& config);

// Returns true if a step with a NaN or infinite loss is skipped, by the scaler or because of "not_finite": "skip". Returns
// false if such a loss ends the run.
bool is_skipped(const StateValues& values, const TrainConfig& config);

// Divides the gradients by the scale. Call this after the gradients are summed over the ranks and before they are clipped.
// Returns false if a gradient is not finite; the caller must then skip the update. If the config skips no steps, returns true
// without a check, because the check waits for the GPU.
bool unscale_gradients(const std::vector<at::Tensor>& parameters, const StateValues& values, const TrainConfig& config);

// Raises, keeps or lowers the scale. Call this once per step, with the result of unscale_gradients().
void update_loss_scale(StateValues& values, const TrainConfig& config, bool finite);

}  // namespace ddprun::trainer
