// The scale of the loss under "precision": "fp16", as values of the state, so that a checkpoint has it and a replaced worker
// gets it. The training loop asks and tells in each step; gradients are the same on all ranks by then, so they decide alike. In
// other precisions nothing is scaled.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

void begin_loss_scale(StateValues& values, const TrainConfig& config);

// What the loss is multiplied by before the backward pass; 1 where nothing is scaled.
double loss_scale(const StateValues& values, const TrainConfig& config);

// Whether a loss that is no number may be due to the range of float16, until the scale is below 1. Then the scaler skips the
// step.
bool is_of_scaler(const StateValues& values, const TrainConfig& config);

// Whether a step whose loss is no number is skipped and does not end the run: by the scaler, or since the config says so.
bool is_skipped(const StateValues& values, const TrainConfig& config);

// After the gradients were summed over the ranks, before they are clipped. False: one is not finite, and the step may not
// change a weight. Looks for that where steps can be skipped, and waits there for the gradients' device.
bool unscale_gradients(const std::vector<at::Tensor>& parameters, const StateValues& values, const TrainConfig& config);

// Once for each step, with what unscale_gradients() said.
void heed_gradients(StateValues& values, const TrainConfig& config, bool finite);

}  // namespace ddprun::trainer
