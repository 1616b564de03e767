// Decides which checkpoints are kept: the newest checkpoints, the best checkpoints by a metric of the evaluation, and the
// first checkpoint in each interval of `every_steps` steps. The functions are pure. checkpoint.cpp removes the other
// checkpoints after each save.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/metric.hpp"
#include "common/config/train_config.hpp"

namespace ddprun::trainer {

struct Retention {
  std::int64_t newest = 3;  // at least 1
  // The first checkpoint at or after each multiple of this number is never removed. 0 turns this rule off.
  std::int64_t every_steps = 0;
  std::int64_t best = 0;             // number of checkpoints to keep because they have the best evaluations
  std::string best_by = "accuracy";  // name of the metric
  bool higher_is_better = true;
};

Retention retention_of(const CheckpointConfig& config);

struct RetainedCheckpoint {
  std::int64_t step = 0;
  std::optional<MetricList> evaluation{};  // evaluation after this step; all values are finite
};

// Returns the steps of the checkpoints to remove, oldest first. `just_written` is never removed. If two values are equal, the
// newer checkpoint is the better one. A checkpoint whose evaluation lacks the metric is not among the best. A checkpoint that
// is kept because of `every_steps` stays the first one of its interval, so every later call keeps it too.
std::vector<std::int64_t> steps_to_remove(const std::vector<RetainedCheckpoint>& checkpoints, const Retention& retention,
                                          std::int64_t just_written);

}  // namespace ddprun::trainer
