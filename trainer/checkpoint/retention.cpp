#include "trainer/checkpoint/retention.hpp"

#include <algorithm>
#include <set>

namespace ddprun::trainer {
namespace {

using Steps = std::set<std::int64_t>;

void keep_newest(const std::vector<RetainedCheckpoint>& newest_first, std::int64_t count, Steps& kept) {
  for (const RetainedCheckpoint& checkpoint : newest_first) {
    if (count-- <= 0) return;
    kept.insert(checkpoint.step);
  }
}

void keep_every(const std::vector<RetainedCheckpoint>& newest_first, std::int64_t every, Steps& kept) {
  if (every <= 0) return;
  // Number of the last interval of `every` steps in which a checkpoint is kept. No checkpoint is kept for interval 0.
  std::int64_t stretch = 0;
  for (auto oldest = newest_first.rbegin(); oldest != newest_first.rend(); ++oldest) {
    if (oldest->step / every <= stretch) continue;
    stretch = oldest->step / every;
    kept.insert(oldest->step);
  }
}

void keep_best(const std::vector<RetainedCheckpoint>& newest_first, const Retention& retention, Steps& kept) {
  std::vector<RetainedCheckpoint> evaluated;
  for (const RetainedCheckpoint& checkpoint : newest_first) {
    if (checkpoint.evaluation && value_of(*checkpoint.evaluation, retention.best_by)) evaluated.push_back(checkpoint);
  }
  std::stable_sort(evaluated.begin(), evaluated.end(), [&](const RetainedCheckpoint& a, const RetainedCheckpoint& b) {
    const double of_a = *value_of(*a.evaluation, retention.best_by);
    const double of_b = *value_of(*b.evaluation, retention.best_by);
    return retention.higher_is_better ? of_a > of_b : of_a < of_b;
  });
  keep_newest(evaluated, retention.best, kept);
}

}  // namespace

Retention retention_of(const CheckpointConfig& config) {
  using BestIs = CheckpointConfig::BestIs;
  const bool by_name = config.best_is == BestIs::kAuto;
  return {.newest = config.keep,
          .every_steps = config.keep_every_steps,
          .best = config.keep_best,
          .best_by = config.best_by,
          .higher_is_better = by_name ? !config.best_by.ends_with("loss") : config.best_is == BestIs::kHighest};
}

std::vector<std::int64_t> steps_to_remove(const std::vector<RetainedCheckpoint>& checkpoints, const Retention& retention,
                                          std::int64_t just_written) {
  std::vector<RetainedCheckpoint> newest_first = checkpoints;
  std::sort(newest_first.begin(), newest_first.end(),
            [](const RetainedCheckpoint& a, const RetainedCheckpoint& b) { return a.step > b.step; });
  // The checkpoint that was just written always stays, even if it is not the newest step: a run that resumed from an earlier
  // step writes checkpoints with lower steps than the existing checkpoints.
  Steps kept{just_written};
  keep_newest(newest_first, std::max<std::int64_t>(retention.newest, 1), kept);
  keep_every(newest_first, retention.every_steps, kept);
  keep_best(newest_first, retention, kept);
  std::vector<std::int64_t> removed;
  for (auto oldest = newest_first.rbegin(); oldest != newest_first.rend(); ++oldest) {
    if (!kept.contains(oldest->step)) removed.push_back(oldest->step);
  }
  return removed;
}

}  // namespace ddprun::trainer
