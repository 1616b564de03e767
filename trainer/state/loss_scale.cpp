// Implementation of loss_scale.hpp. It stores the scale in StateValues under fixed names, and applies the rule of
// trainer/optim/grad_scaler.hpp to it.
#include "trainer/state/loss_scale.hpp"

#include <cstdint>

#include "trainer/optim/grad_scaler.hpp"
#include "trainer/state/skipped_steps.hpp"

namespace ddprun::trainer {
namespace {

constexpr const char* kScale = "grad_scaler.scale";
constexpr const char* kTracker = "grad_scaler.growth_tracker";

bool is_scaled(const TrainConfig& config) {
  return config.precision == TrainConfig::Precision::kFp16;
}

GradScale scale_in(const StateValues& values) {
  return {.scale = static_cast<float>(values.at(kScale)), .growth_tracker = static_cast<std::int64_t>(values.at(kTracker))};
}

void put_scale(StateValues& values, const GradScale& scale) {
  values[kScale] = static_cast<double>(scale.scale);
  values[kTracker] = static_cast<double>(scale.growth_tracker);
}

}  // namespace

void init_loss_scale(StateValues& values, const TrainConfig& config) {
  if (is_scaled(config)) put_scale(values, initial_grad_scale(config.grad_scaler));
}

double loss_scale(const StateValues& values, const TrainConfig& config) {
  return is_scaled(config) ? values.at(kScale) : 1;
}

bool is_scaler_overflow(const StateValues& values, const TrainConfig& config) {
  return is_scaled(config) && values.at(kScale) >= 1;
}

bool is_skipped(const StateValues& values, const TrainConfig& config) {
  return is_scaler_overflow(values, config) || skips_steps(values);
}

bool unscale_gradients(const std::vector<at::Tensor>& parameters, const StateValues& values, const TrainConfig& config) {
  if (!is_scaled(config) && !skips_steps(values)) return true;
  // With a scale of 1, unscale() checks the gradients without changing them.
  return unscale(parameters, is_scaled(config) ? scale_in(values).scale : 1);
}

void update_loss_scale(StateValues& values, const TrainConfig& config, bool finite) {
  if (is_scaled(config)) put_scale(values, after_gradients(config.grad_scaler, scale_in(values), finite));
}

}  // namespace ddprun::trainer
