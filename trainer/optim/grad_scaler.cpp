#include "trainer/optim/grad_scaler.hpp"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>

#include <cmath>

namespace ddprun::trainer {

GradScale initial_grad_scale(const GradScalerConfig& config) {
  return {.scale = static_cast<float>(config.init_scale)};
}

GradScale after_gradients(const GradScalerConfig& config, GradScale before, bool finite) {
  const auto times = [&](double factor) { return static_cast<float>(static_cast<double>(before.scale) * factor); };
  if (!finite) return {.scale = times(config.backoff_factor)};
  if (before.growth_tracker + 1 != config.growth_interval) {
    return {.scale = before.scale, .growth_tracker = before.growth_tracker + 1};
  }
  const float grown = times(config.growth_factor);
  return {.scale = std::isfinite(grown) ? grown : before.scale};
}

bool unscale(const std::vector<at::Tensor>& parameters, float scale) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.mutable_grad().defined()) gradients.push_back(parameter.mutable_grad());
  }
  if (gradients.empty()) return true;
  const at::TensorOptions scalar = gradients.front().options().dtype(at::kFloat);
  at::Tensor found = at::scalar_tensor(0, scalar);
  const auto inverse = static_cast<float>(1 / static_cast<double>(scale));
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, at::scalar_tensor(inverse, scalar));
  return found.item<float>() == 0;
}

}  // namespace ddprun::trainer
