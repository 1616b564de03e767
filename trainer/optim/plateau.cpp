// Implementation of plateau.hpp. Operations have PyTorch's order, so that the learning rates equal PyTorch's to the bit.
#include "trainer/optim/plateau.hpp"

#include <algorithm>
#include <limits>

namespace ddprun::trainer {
namespace {

double worst(bool higher) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return higher ? -kInfinity : kInfinity;
}

bool is_better(const ScheduleConfig& config, double figure, double best) {
  const bool higher = higher_is_better(config.mode, config.metric);
  if (config.threshold_mode == ScheduleConfig::ThresholdMode::kRel) {
    return higher ? figure > best * (config.threshold + 1.0) : figure < best * (1.0 - config.threshold);
  }
  return higher ? figure > best + config.threshold : figure < best - config.threshold;
}

}  // namespace

bool higher_is_better(FigureMode mode, const std::string& metric) {
  return mode == FigureMode::kAuto ? metric.ends_with("accuracy") : mode == FigureMode::kMax;
}

Plateau begin_plateau(const ScheduleConfig& config, double lr) {
  return {.lr = lr, .best = worst(higher_is_better(config.mode, config.metric))};
}

Plateau after_evaluation(const ScheduleConfig& config, Plateau before, double figure) {
  Plateau now = before;
  if (is_better(config, figure, before.best)) {
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

Waiting begin_waiting(const EarlyStoppingConfig& config) {
  return {.best = worst(higher_is_better(config.mode, config.metric))};
}

Waiting after_evaluation(const EarlyStoppingConfig& config, Waiting before, double figure) {
  const bool higher = higher_is_better(config.mode, config.metric);
  const bool better = higher ? figure - config.min_delta > before.best : figure + config.min_delta < before.best;
  return better ? Waiting{.best = figure, .bad = 0} : Waiting{.best = before.best, .bad = before.bad + 1};
}

bool has_waited_enough(const EarlyStoppingConfig& config, const Waiting& waiting) {
  return config.patience > 0 && waiting.bad >= config.patience;
}

}  // namespace ddprun::trainer
