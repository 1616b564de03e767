// Loss scaling as in torch.amp.GradScaler. In float16, small gradients would be rounded to zero. So the loss is multiplied by a
// scale before the backward pass, and the gradients are divided by it afterwards. If a gradient is infinite, the scale was too
// high: the step is skipped and the scale is reduced. After many steps without an infinite gradient, the scale is increased.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

struct GradScale {
  float scale = 1;
  std::int64_t growth_tracker = 0;  // number of consecutive steps with finite gradients

  bool operator==(const GradScale&) const = default;
};

GradScale initial_grad_scale(const GradScalerConfig& config);

// Returns the scale for the next step. Corresponds to GradScaler.update(), with the arithmetic of at::_amp_update_scale_.
GradScale after_gradients(const GradScalerConfig& config, GradScale before, bool finite);

// Divides the gradients of these parameters by the scale. Returns false if a gradient is infinite or NaN. Corresponds to
// GradScaler.unscale_(). If the gradients are on a GPU, the call waits for the GPU.
bool unscale(const std::vector<at::Tensor>& parameters, float scale);

}  // namespace ddprun::trainer
