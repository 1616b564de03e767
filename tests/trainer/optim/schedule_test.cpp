// Compares the schedules with their closed forms, at the steps where a schedule starts, changes or ends.
#include "trainer/optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "tests/trainer/optim/golden.hpp"

namespace ddprun::trainer {
namespace {

using Type = ScheduleConfig::Type;

double factor(const ScheduleConfig& config, std::int64_t step, std::int64_t total = 100) {
  return learning_rate_factor(config, step, /*steps_per_epoch=*/10, total);
}

TEST(Schedule, ConstantIsOne) {
  for (const std::int64_t step : {0, 1, 99, 1000}) {
    EXPECT_EQ(factor({.type = Type::kConstant}, step), 1.0);
  }
}

TEST(Schedule, WarmUpRisesLinearlyToOneInEverySchedule) {
  for (const Type type :
       {Type::kConstant, Type::kStep, Type::kCosine, Type::kLinear, Type::kPolynomial, Type::kWarmupStableDecay}) {
    const ScheduleConfig config{.type = type, .warmup_steps = 4};
    EXPECT_EQ(factor(config, 0), 0.25);
    EXPECT_EQ(factor(config, 1), 0.5);
    EXPECT_EQ(factor(config, 3), 1.0);
    EXPECT_EQ(factor(config, 4), 1.0);
  }
}

TEST(Schedule, StepMultipliesByGammaEveryFewEpochs) {
  const ScheduleConfig config{.type = Type::kStep, .step_epochs = 2, .gamma = 0.5};
  EXPECT_EQ(factor(config, 0), 1.0);
  EXPECT_EQ(factor(config, 19), 1.0);
  EXPECT_EQ(factor(config, 20), 0.5);
  EXPECT_EQ(factor(config, 59), 0.25);
  EXPECT_EQ(factor(config, 60), 0.125);
}

TEST(Schedule, StepCountsEpochsFromTheStartOfTheRun) {
  EXPECT_EQ(factor({.type = Type::kStep, .warmup_steps = 15, .gamma = 0.5}, 15), 0.5);
}

TEST(Schedule, LinearGoesFromOneToTheFinalFactorAtTheLastStep) {
  const ScheduleConfig config{.type = Type::kLinear, .final_factor = 0.2};
  EXPECT_EQ(factor(config, 0, 11), 1.0);
  EXPECT_DOUBLE_EQ(factor(config, 5, 11), 0.6);
  EXPECT_DOUBLE_EQ(factor(config, 10, 11), 0.2);
}

TEST(Schedule, CosineGoesFromOneToTheFinalFactorAtTheLastStep) {
  const ScheduleConfig config{.type = Type::kCosine, .final_factor = 0.2};
  EXPECT_EQ(factor(config, 0, 13), 1.0);
  EXPECT_DOUBLE_EQ(factor(config, 4, 13), 0.2 + 0.8 * 0.75);  // cos(pi / 3) = 1/2
  EXPECT_DOUBLE_EQ(factor(config, 6, 13), 0.6);
  EXPECT_DOUBLE_EQ(factor(config, 12, 13), 0.2);
}

TEST(Schedule, StartsAfterWarmUp) {
  const ScheduleConfig config{.type = Type::kLinear, .warmup_steps = 10, .final_factor = 0.0};
  EXPECT_EQ(factor(config, 10, 21), 1.0);
  EXPECT_DOUBLE_EQ(factor(config, 15, 21), 0.5);
  EXPECT_EQ(factor(config, 20, 21), 0.0);
}

TEST(Schedule, StaysAtTheFinalFactorBeyondTheEnd) {
  EXPECT_DOUBLE_EQ(factor({.type = Type::kLinear, .final_factor = 0.3}, 500, 21), 0.3);
  EXPECT_DOUBLE_EQ(factor({.type = Type::kCosine, .final_factor = 0.3}, 500, 21), 0.3);
}

TEST(Schedule, ASingleStepUsesTheFullRate) {
  for (const Type type : {Type::kCosine, Type::kLinear}) {
    EXPECT_EQ(factor({.type = type}, 0, 1), 1.0);
    EXPECT_EQ(factor({.type = type, .warmup_steps = 4}, 4, 5), 1.0);
  }
}

TEST(Schedule, AShortRunIsTruncatedWarmUp) {
  const ScheduleConfig config{.type = Type::kCosine, .warmup_steps = 100};
  EXPECT_EQ(factor(config, 0, 10), 0.01);
  EXPECT_EQ(factor(config, 9, 10), 0.1);
}

TEST(Schedule, HandlesAnEpochWithoutSteps) {
  EXPECT_EQ(learning_rate_factor({.type = Type::kStep}, 0, 0, 0), 1.0);
}

// PyTorch computed the expected values for a learning rate of 1. Some of these values are computed from the value of the
// previous step.
TEST(Schedule, MatchesPyTorch) {
  const std::map<std::string, Type> types{
      {"one_cycle", Type::kOneCycle}, {"polynomial", Type::kPolynomial}, {"warmup_stable_decay", Type::kWarmupStableDecay}};
  for (const nlohmann::json& entry : golden()["schedules"]) {
    const ScheduleConfig normal;
    const ScheduleConfig config{.type = types.at(entry["type"]),
                                .warmup_steps = entry.value("warmup_steps", normal.warmup_steps),
                                .final_factor = entry.value("final_factor", normal.final_factor),
                                .power = entry.value("power", normal.power),
                                .pct_start = entry.value("pct_start", normal.pct_start),
                                .div_factor = entry.value("div_factor", normal.div_factor),
                                .final_div_factor = entry.value("final_div_factor", normal.final_div_factor),
                                .decay_steps = entry.value("decay_steps", normal.decay_steps)};
    const nlohmann::json& factors = entry["factors"];
    for (std::size_t step = 0; step < factors.size(); ++step) {
      EXPECT_NEAR(factor(config, static_cast<std::int64_t>(step), entry["steps"]), factors[step].get<double>(), 1e-12)
          << entry["type"] << " of " << entry["steps"] << " at step " << step;
    }
  }
}

TEST(Schedule, OneCycleEndsAtTheLastStepAndStaysThere) {
  for (const std::int64_t step : {99, 100, 1000}) EXPECT_DOUBLE_EQ(factor({.type = Type::kOneCycle}, step), 1 / 25e4);
  EXPECT_EQ(factor({.type = Type::kOneCycle, .pct_start = 0.01}, 0), 1.0) << "its rise is one step long";
  EXPECT_TRUE(std::isfinite(factor({.type = Type::kOneCycle}, 0, 1)));
  EXPECT_TRUE(std::isfinite(factor({.type = Type::kOneCycle, .pct_start = 1}, 0, 1)));
}

TEST(Schedule, TheLastTenthDecaysAfterTheStablePhase) {
  const ScheduleConfig config{.type = Type::kWarmupStableDecay, .warmup_steps = 10};
  EXPECT_EQ(factor(config, 50), 1.0);
  EXPECT_EQ(factor(config, 89), 1.0);
  EXPECT_DOUBLE_EQ(factor(config, 90), 0.9);
  EXPECT_DOUBLE_EQ(factor(config, 99), 0.0);
  EXPECT_DOUBLE_EQ(factor({.type = Type::kWarmupStableDecay, .warmup_steps = 50, .decay_steps = 1000}, 50), 1.0)
      << "a decay cannot start before the end of warm-up";
}

}  // namespace
}  // namespace ddprun::trainer
