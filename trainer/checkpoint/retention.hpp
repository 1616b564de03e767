// Which checkpoints stay: the newest, the best by a figure of the evaluation, and the first of every so many steps. A pure
// decision; checkpoint.cpp carries it out after each save.
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
  std::int64_t every_steps = 0;      // the first checkpoint at or past each multiple of this stays for ever; 0: none does
  std::int64_t best = 0;             // so many with the best evaluation stay as well
  std::string best_by = "accuracy";  // the figure's name
  bool higher_is_better = true;
};

Retention retention_of(const CheckpointConfig& config);

struct RetainedCheckpoint {
  std::int64_t step = 0;
  std::optional<FigureList> evaluation{};  // of what was found after the step; all are finite
};

// The steps of those that go, oldest first. `just_written` never does. Equal figures: the newer one is the better. One
// whose evaluation lacks the figure is none of the best. What stays
// by `every_steps` stays at every later call too, since the first one of its stretch is always there.
std::vector<std::int64_t> steps_to_remove(const std::vector<RetainedCheckpoint>& checkpoints, const Retention& retention,
                                          std::int64_t just_written);

}  // namespace ddprun::trainer
