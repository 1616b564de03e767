// Tests the interval between checkpoints, which balances the cost of saving against the expected loss of work.
#include "trainer/loop/interval.hpp"

#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

TEST(CheckpointInterval, FollowsYoungsFormula) {
  EXPECT_DOUBLE_EQ(checkpoint_interval_s(2, 10'000), 200);    // sqrt(2 * 2 * 10000)
  EXPECT_DOUBLE_EQ(checkpoint_interval_s(0.5, 14'400), 120);  // sqrt(2 * 0.5 * 14400)
}

TEST(CheckpointInterval, HasBounds) {
  EXPECT_DOUBLE_EQ(checkpoint_interval_s(0.001, 10), kMinIntervalSeconds);
  EXPECT_DOUBLE_EQ(checkpoint_interval_s(0, 1e9), kMinIntervalSeconds);
  EXPECT_DOUBLE_EQ(checkpoint_interval_s(100, 1e9), kMaxIntervalSeconds);
  EXPECT_DOUBLE_EQ(checkpoint_interval_s(60, 60), 120) << "twice the save: sqrt(7200) would be less";
  EXPECT_DOUBLE_EQ(checkpoint_interval_s(5000, 60), 10'000) << "a save longer than the longest interval";
}

TEST(MeanTimeBetweenFailures, StartsFromAnAssumptionAndFollowsObservations) {
  EXPECT_DOUBLE_EQ(mean_seconds_between_failures(0, 0), kAssumedSecondsBetweenFailures);
  EXPECT_DOUBLE_EQ(mean_seconds_between_failures(kAssumedSecondsBetweenFailures, 1), kAssumedSecondsBetweenFailures);
  EXPECT_DOUBLE_EQ(mean_seconds_between_failures(-5, 0), kAssumedSecondsBetweenFailures) << "a clock that was set back";
  const double ten_days = 864'000;
  EXPECT_NEAR(mean_seconds_between_failures(ten_days, 240), 3600, 60) << "one an hour";
}

}  // namespace
}  // namespace ddprun::trainer
