// The rule of torch.amp.GradScaler: the loss is multiplied by a scale, so that gradients in float16 do not become zero. If a
// gradient is infinite, the step is skipped and the scale falls. After many steps without an infinite gradient it rises.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

struct GradScale {
  float scale = 1;
  std::int64_t growth_tracker = 0;  // consecutive steps with finite gradients

  bool operator==(const GradScale&) const = default;
};

GradScale begin_grad_scale(const GradScalerConfig& config);

// GradScaler.update(), with the arithmetic of at::_amp_update_scale_.
GradScale after_gradients(const GradScalerConfig& config, GradScale before, bool finite);

// GradScaler.unscale_(): divides the gradients of these parameters by the scale. Returns false if one is infinite or NaN. Waits
// for the gradients' device.
bool unscale(const std::vector<at::Tensor>& parameters, float scale);

}  // namespace ddprun::trainer
