// When the times of steps are told, and which are put together.
#include "common/channel/step_times.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace ddprun::channel {
namespace {

using std::chrono::milliseconds;

TEST(StepTimes, AreToldFiveTimesASecondAndShortStepsTogether) {
  StepTimes times;
  StepTimes::Time now{milliseconds(1000)};
  EXPECT_TRUE(times.add({.step = 1, .own_us = 20'000, .waiting_us = 1'000, .data_us = 5}, now)) << "the first at once";
  for (std::int64_t step = 2; step < 12; ++step) {  // of 19 ms: six make a piece
    now += milliseconds(19);
    EXPECT_FALSE(times.add({.step = step, .own_us = 18'000, .waiting_us = 1'000, .data_us = 2}, now));
  }
  now += milliseconds(19);
  EXPECT_FALSE(times.add({.step = 12, .own_us = 18'000, .waiting_us = 1'000, .data_us = 2}, now)) << "a part of a piece";
  const auto pace = times.add({.step = 13, .own_us = 18'000, .waiting_us = 1'000, .data_us = 2}, now);
  ASSERT_TRUE(pace);
  ASSERT_EQ(pace->times.size(), 2U);
  EXPECT_EQ(pace->times.back(), (StepTime{.step = 13, .steps = 6, .own_us = 108'000, .waiting_us = 6'000, .data_us = 12}));
}

TEST(StepTimes, NumbersThatCannotBeHaveNoSum) {
  const auto total =
      total_of({.times = {{.step = 3, .steps = 2, .own_us = 5, .waiting_us = 6, .data_us = 1}, {.step = 4, .own_us = 1}}});
  EXPECT_EQ(total, (StepTime{.step = 4, .steps = 3, .own_us = 6, .waiting_us = 6, .data_us = 1}));
  EXPECT_FALSE(total_of({}));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const StepTime& wrong : {StepTime{.step = -1}, StepTime{.steps = 0}, StepTime{.steps = kMost}, StepTime{.own_us = -1},
                                StepTime{.waiting_us = kMost}, StepTime{.data_us = -1}}) {
    EXPECT_FALSE(total_of({.times = {StepTime{.step = 1}, wrong}}));
  }
}

TEST(StepTimes, AMessageHasRoomForAllOfThem) {
  StepTimes times;
  const StepTimes::Time now{milliseconds(1000)};
  EXPECT_TRUE(times.add({.step = 1, .own_us = 20'000}, now));
  std::size_t told = 0;
  for (std::int64_t step = 2; told == 0; ++step) {
    if (const auto pace = times.add({.step = step, .own_us = 20'000}, now)) told = pace->times.size();
  }
  EXPECT_EQ(told, kMaxStepTimes);
}

}  // namespace
}  // namespace ddprun::channel
