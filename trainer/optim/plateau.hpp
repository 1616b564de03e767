// Rules for a run whose evaluation metric no longer improves. With schedule.type "plateau" the learning rate is reduced. With
// early_stopping the run ends. Both rules use the metric of each scheduled evaluation. The training state contains their
// counters (trainer/state/evaluation_rules.hpp). All functions are pure.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Returns true if a higher value of the metric is better. With kAuto this holds only for metrics whose name ends with
// "accuracy".
bool higher_is_better(MetricMode mode, const std::string& metric);

// The state of torch.optim.lr_scheduler.ReduceLROnPlateau.
struct Plateau {
  double lr = 0;
  double best = 0;            // the best metric so far; plus or minus infinity before the first evaluation
  std::int64_t bad = 0;       // number of evaluations since the best one or since the last reduction
  std::int64_t cooldown = 0;  // number of the next evaluations that are not counted in `bad`
};

Plateau initial_plateau(const ScheduleConfig& config, double lr);
// Returns the state after an evaluation with the metric `figure`. A NaN metric counts as no improvement.
Plateau after_evaluation(const ScheduleConfig& config, Plateau before, double figure);

// The state of early stopping. The rule is the same as in the class EarlyStopping of Keras and of Lightning.
struct EarlyStop {
  double best = 0;       // the best metric so far; plus or minus infinity before the first evaluation
  std::int64_t bad = 0;  // number of evaluations since the best one
};

EarlyStop initial_early_stop(const EarlyStoppingConfig& config);
EarlyStop after_evaluation(const EarlyStoppingConfig& config, EarlyStop before, double figure);
bool patience_exhausted(const EarlyStoppingConfig& config, const EarlyStop& early_stop);

}  // namespace ddprun::trainer
