// Implementation of plateau.hpp. The arithmetic operations have the same order as in PyTorch, so that the learning rates are
// bit-identical.
#include "trainer/optim/plateau.hpp"

#include <algorithm>
#include <limits>

namespace ddprun::trainer {
namespace {

double worst(bool higher) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return higher ? -kInfinity : kInfinity;
}

bool improves(const ScheduleConfig& config, double figure, double best) {
  const bool higher = higher_is_better(config.mode, config.metric);
  if (config.threshold_mode == ScheduleConfig::ThresholdMode::kRel) {
    return higher ? figure > best * (config.threshold + 1.0) : figure < best * (1.0 - config.threshold);
  }
  return higher ? figure > best + config.threshold : figure < best - config.threshold;
}

}  // namespace

bool higher_is_better(MetricMode mode, const std::string& metric) {
  return mode == MetricMode::kAuto ? metric.ends_with("accuracy") : mode == MetricMode::kMax;
}

Plateau initial_plateau(const ScheduleConfig& config, double lr) {
  return {.lr = lr, .best = worst(higher_is_better(config.mode, config.metric))};
}

Plateau after_evaluation(const ScheduleConfig& config, Plateau before, double figure) {
  Plateau now = before;
  if (improves(config, figure, before.best)) {
    now.best = figure;
    now.bad = 0;
  } else {
    ++now.bad;
  }
  if (now.cooldown > 0) {
    --now.cooldown;
    now.bad = 0;
  }
  if (now.bad <= config.patience) return now;
  const double lower = std::max(now.lr * config.factor, config.min_lr);
  if (now.lr - lower > config.eps) now.lr = lower;
  now.cooldown = config.cooldown;
  now.bad = 0;
  return now;
}

EarlyStop initial_early_stop(const EarlyStoppingConfig& config) {
  return {.best = worst(higher_is_better(config.mode, config.metric))};
}

EarlyStop after_evaluation(const EarlyStoppingConfig& config, EarlyStop before, double figure) {
  const bool higher = higher_is_better(config.mode, config.metric);
  const bool better = higher ? figure - config.min_delta > before.best : figure + config.min_delta < before.best;
  return better ? EarlyStop{.best = figure, .bad = 0} : EarlyStop{.best = before.best, .bad = before.bad + 1};
}

bool patience_exhausted(const EarlyStoppingConfig& config, const EarlyStop& early_stop) {
  return config.patience > 0 && early_stop.bad >= config.patience;
}

}  // namespace ddprun::trainer
