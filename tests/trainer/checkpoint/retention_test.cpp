// Tests the rules that select the checkpoints to keep.
#include "trainer/checkpoint/retention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace ddprun::trainer {
namespace {

using Steps = std::vector<std::int64_t>;

std::vector<RetainedCheckpoint> plain(const Steps& steps) {
  std::vector<RetainedCheckpoint> checkpoints;
  for (const std::int64_t step : steps) checkpoints.push_back({.step = step});
  return checkpoints;
}

TEST(Retention, KeepsTheNewest) {
  EXPECT_EQ(steps_to_remove(plain({100, 400, 200, 300}), {.newest = 2}, 400), (Steps{100, 200}));
  EXPECT_EQ(steps_to_remove(plain({100, 200}), {.newest = 2}, 200), Steps{});
  EXPECT_EQ(steps_to_remove({}, {.newest = 2}, 200), Steps{});
}

TEST(Retention, KeepsAtLeastOneAndTheJustWrittenOne) {
  EXPECT_EQ(steps_to_remove(plain({100, 200}), {.newest = 0}, 200), Steps{100});
  EXPECT_EQ(steps_to_remove(plain({100, 500, 900}), {.newest = 1}, 500), Steps{100});
}

TEST(Retention, KeepsTheFirstAtOrPastEachMultiple) {
  // With every_steps = 100, the first checkpoint at or after each multiple of 100 is kept, if its step is below the next
  // multiple. These checkpoints are at steps 100, 207 (not 250) and 420. Between 300 and 400 there is no checkpoint. Step 480
  // is kept as the newest checkpoint.
  EXPECT_EQ(steps_to_remove(plain({30, 100, 150, 207, 250, 420, 450, 480}), {.newest = 1, .every_steps = 100}, 480),
            (Steps{30, 150, 250, 450}));
}

TEST(Retention, KeepsTheBest) {
  const std::vector<RetainedCheckpoint> checkpoints{
      {1, {{{"loss", 0.9}, {"accuracy", 0.70}}}}, {2, {{{"loss", 0.2}, {"accuracy", 0.80}}}},
      {3, {{{"loss", 0.5}, {"accuracy", 0.95}}}}, {4, {}},
      {5, {{{"loss", 0.4}, {"accuracy", 0.80}}}}, {6, {{{"loss", 0.8}, {"accuracy", 0.60}}}}};
  EXPECT_EQ(steps_to_remove(checkpoints, {.newest = 1, .best = 1}, 6), (Steps{1, 2, 4, 5}));
  EXPECT_EQ(steps_to_remove(checkpoints, {.newest = 1, .best = 2}, 6), (Steps{1, 2, 4})) << "of equals the newer one";
  EXPECT_EQ(steps_to_remove(checkpoints, {.newest = 1, .best = 1, .best_by = "loss", .higher_is_better = false}, 6),
            (Steps{1, 3, 4, 5}));
  EXPECT_EQ(steps_to_remove(checkpoints, {.newest = 1, .best = 99}, 6), Steps{4})
      << "one without an evaluation is never the best";
}

// Simulates runs that save at irregular steps and remove checkpoints after each save. At the end all rules must hold.
TEST(Retention, HoldsOverWholeRuns) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Retention rules{.newest = 1 + static_cast<std::int64_t>(random() % 4),
                          .every_steps = static_cast<std::int64_t>(random() % 3 * 50),
                          .best = static_cast<std::int64_t>(random() % 3)};
    std::vector<RetainedCheckpoint> all, there;
    for (std::int64_t step = 0; all.size() < 40;) {
      step += 1 + static_cast<std::int64_t>(random() % 40);
      RetainedCheckpoint saved{.step = step};
      if (random() % 2 == 0) saved.evaluation = {{"loss", 1}, {"accuracy", static_cast<double>(random() % 1000)}};
      all.push_back(saved);
      there.push_back(saved);
      for (const std::int64_t gone : steps_to_remove(there, rules, step)) {
        std::erase_if(there, [&](const RetainedCheckpoint& c) { return c.step == gone; });
      }
    }
    std::set<std::int64_t> steps;
    for (const RetainedCheckpoint& c : there) steps.insert(c.step);
    for (std::int64_t i = 1; i <= rules.newest; ++i)
      EXPECT_TRUE(steps.contains(all[all.size() - static_cast<std::size_t>(i)].step));
    if (rules.every_steps > 0) {
      for (std::int64_t multiple = rules.every_steps; multiple <= all.back().step; multiple += rules.every_steps) {
        const auto first = std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.step >= multiple; });
        if (first->step < multiple + rules.every_steps) {
          EXPECT_TRUE(steps.contains(first->step)) << multiple;
        }
      }
    }
    if (rules.best > 0) {
      const RetainedCheckpoint* best = nullptr;
      for (const RetainedCheckpoint& c : all) {
        if (c.evaluation && (!best || value_of(*c.evaluation, "accuracy") >= value_of(*best->evaluation, "accuracy")))
          best = &c;
      }
      if (best) {
        EXPECT_TRUE(steps.contains(best->step));
      }
    }
    if (rules.every_steps == 0) {
      EXPECT_LE(steps.size(), static_cast<std::size_t>(rules.newest + rules.best));
    }
  }
}

}  // namespace
}  // namespace ddprun::trainer
