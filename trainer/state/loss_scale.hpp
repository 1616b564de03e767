// The scale of the loss with "precision": "fp16". It is kept in values of the state, so a checkpoint contains it and a replaced
// worker receives it. The training loop reads and updates it in each step. Gradients are already summed at that point, so all
// ranks decide the same. With other precisions nothing is scaled.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

void begin_loss_scale(StateValues& values, const TrainConfig& config);

// Returns the factor of the loss before the backward pass; 1 if nothing is scaled.
double loss_scale(const StateValues& values, const TrainConfig& config);

// Whether a loss or gradient that is not finite may be caused by the range of float16. This is possible until the scale is
// below 1, and the scaler then skips the step.
bool is_of_scaler(const StateValues& values, const TrainConfig& config);

// Whether a step with a NaN or infinite loss is skipped instead of ending the run: by the scaler, or because of the config.
bool is_skipped(const StateValues& values, const TrainConfig& config);

// Call after the gradients are summed over the ranks and before they are clipped. Returns false if one is not finite; the step
// must not change a weight then. Checks that only if steps can be skipped, since the check waits for the gradients' device.
bool unscale_gradients(const std::vector<at::Tensor>& parameters, const StateValues& values, const TrainConfig& config);

// Call once for each step, with the result of unscale_gradients().
void heed_gradients(StateValues& values, const TrainConfig& config, bool finite);

}  // namespace ddprun::trainer
