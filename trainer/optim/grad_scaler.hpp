// The rule of torch.amp.GradScaler: a loss is multiplied by a scale, so that gradients in float16 do not vanish; where one is
// infinite the step is skipped and the scale falls, and after many steps without one it rises.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

struct GradScale {
  float scale = 1;
  std::int64_t growth_tracker = 0;  // steps in a row with finite gradients

  bool operator==(const GradScale&) const = default;
};

GradScale begin_grad_scale(const GradScalerConfig& config);

// GradScaler.update(), with the arithmetic of at::_amp_update_scale_.
GradScale after_gradients(const GradScalerConfig& config, GradScale before, bool finite);

// GradScaler.unscale_(): divides the gradients of these parameters by the scale. False: one is infinite or no number. Waits for
// the gradients' device.
bool unscale(const std::vector<at::Tensor>& parameters, float scale);

}  // namespace ddprun::trainer
