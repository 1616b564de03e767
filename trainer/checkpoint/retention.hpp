// Decides which checkpoints stay: the newest ones, the best ones by a metric of the evaluation, and the first in each stretch
// of `every_steps` steps. This is a pure decision; checkpoint.cpp executes it after each save.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/figure.hpp"
#include "common/config/train_config.hpp"

namespace ddprun::trainer {

struct Retention {
  std::int64_t newest = 3;           // at least 1
  std::int64_t every_steps = 0;      // the first checkpoint at or past each multiple of this stays forever; 0: no such rule
  std::int64_t best = 0;             // number of checkpoints with the best evaluation that also stay
  std::string best_by = "accuracy";  // name of the metric
  bool higher_is_better = true;
};

Retention retention_of(const CheckpointConfig& config);

struct RetainedCheckpoint {
  std::int64_t step = 0;
  std::optional<FigureList> evaluation{};  // evaluation after this step; all values are finite
};

// Returns the steps of the checkpoints to remove, oldest first. `just_written` is never removed. If two values are equal, the
// newer checkpoint is the better one. A checkpoint whose evaluation lacks the metric is not among the best. A checkpoint that
// stays because of `every_steps` also stays at every later call, since the first one of its stretch never changes.
std::vector<std::int64_t> steps_to_remove(const std::vector<RetainedCheckpoint>& checkpoints, const Retention& retention,
                                          std::int64_t just_written);

}  // namespace ddprun::trainer
