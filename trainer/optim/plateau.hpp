// Rules for a run whose evaluations do not improve: the learning rate falls (schedule.type "plateau"), or the run ends
// (early_stopping). Both receive the metric of each evaluation that the config schedules. Their memory is part of the training
// state (trainer/state/evaluation_rules.hpp). Pure.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

bool higher_is_better(FigureMode mode, const std::string& metric);

// torch.optim.lr_scheduler.ReduceLROnPlateau.
struct Plateau {
  double lr = 0;
  double best = 0;  // infinite before the first evaluation
  std::int64_t bad = 0;
  std::int64_t cooldown = 0;  // evaluations that will not be counted
};

Plateau begin_plateau(const ScheduleConfig& config, double lr);
// A NaN metric is not an improvement.
Plateau after_evaluation(const ScheduleConfig& config, Plateau before, double figure);

// Counts like the EarlyStopping of Keras and Lightning.
struct Waiting {
  double best = 0;
  std::int64_t bad = 0;
};

Waiting begin_waiting(const EarlyStoppingConfig& config);
Waiting after_evaluation(const EarlyStoppingConfig& config, Waiting before, double figure);
bool has_waited_enough(const EarlyStoppingConfig& config, const Waiting& waiting);

}  // namespace ddprun::trainer
