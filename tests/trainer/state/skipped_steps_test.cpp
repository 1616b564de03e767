// Tests the counts of skipped steps, and their values after a resume from a checkpoint.
#include "trainer/state/skipped_steps.hpp"

#include <gtest/gtest.h>

#include "trainer/state/evaluation_rules.hpp"
#include "trainer/state/loss_scale.hpp"

namespace ddprun::trainer {
namespace {

TrainConfig config_with(TrainConfig::NotFinite rule, TrainConfig::Precision precision = TrainConfig::Precision::kFp32) {
  TrainConfig config;
  config.not_finite = rule;
  config.precision = precision;
  return config;
}

StateValues initial_values(const TrainConfig& config, const StateValues& saved = {}) {
  StateValues values;
  init_values(values, config, saved);
  return values;
}

TEST(SkippedSteps, AreCountedConsecutivelyAndInTotal) {
  const TrainConfig config = config_with(TrainConfig::NotFinite::kSkip);
  StateValues values = initial_values(config);
  EXPECT_TRUE(skips_steps(values));
  EXPECT_TRUE(is_skipped(values, config));
  for (const bool finite : {true, false, false, true, false}) count_step(values, finite, /*by_scaler=*/false);
  EXPECT_EQ(skipped_steps(values), 3);
  EXPECT_EQ(skipped_in_a_row(values), 1);
  EXPECT_EQ(steps_without_change(values), 1);
  const StateValues resumed = initial_values(config, values);
  EXPECT_EQ(resumed, values);
}

TEST(SkippedSteps, NothingIsStoredWithoutSkipping) {
  const TrainConfig config = config_with(TrainConfig::NotFinite::kStop);
  StateValues values = initial_values(config, initial_values(config_with(TrainConfig::NotFinite::kSkip)));
  EXPECT_TRUE(values.empty()) << "as a checkpoint of an earlier version has it";
  count_step(values, false, false);
  EXPECT_EQ(skipped_steps(values), std::nullopt);
  EXPECT_EQ(skipped_in_a_row(values), 0);
  EXPECT_EQ(steps_without_change(values), 0);
  EXPECT_FALSE(is_skipped(values, config));
}

// The scaler intentionally starts with a scale that is too large, so it normally skips several consecutive steps.
TEST(SkippedSteps, StepsOfTheScalerDoNotCountConsecutively) {
  for (const auto rule : {TrainConfig::NotFinite::kStop, TrainConfig::NotFinite::kSkip}) {
    const TrainConfig config = config_with(rule, TrainConfig::Precision::kFp16);
    StateValues values = initial_values(config);
    while (is_scaler_overflow(values, config)) {
      count_step(values, false, /*by_scaler=*/true);
      update_loss_scale(values, config, false);
    }
    EXPECT_EQ(skipped_steps(values), 17) << "65536 is halved until it is below 1";
    EXPECT_EQ(skipped_in_a_row(values), 0);
    EXPECT_EQ(steps_without_change(values), 17) << "the scaler's as well";
    EXPECT_EQ(is_skipped(values, config), rule == TrainConfig::NotFinite::kSkip);
    count_step(values, false, /*by_scaler=*/false);
    EXPECT_EQ(skipped_steps(values), 18);
    EXPECT_EQ(skipped_in_a_row(values), rule == TrainConfig::NotFinite::kSkip ? 1 : 0);
  }
}

}  // namespace
}  // namespace ddprun::trainer
