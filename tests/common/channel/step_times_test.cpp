// Tests when a worker sends its step times, and how many steps one entry of the message combines.
#include "common/channel/step_times.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <vector>

namespace ddprun::channel {
namespace {

using std::chrono::milliseconds;

// Total number of messages sent for a series of equal steps, and the number of steps that these messages cover.
struct Sent {
  int messages = 0;
  std::int64_t steps = 0;
};

Sent add_steps(int steps, std::int64_t each_ms) {
  StepTimes times;
  StepTimes::Time now{milliseconds(1000)};
  times.add({.step = 1, .own_us = 1'000'000}, now);  // the first step is sent immediately
  Sent sent;
  for (std::int64_t step = 2; step < 2 + steps; ++step) {
    now += milliseconds(each_ms);
    if (const auto pace = times.add({.step = step, .own_us = each_ms * 900, .waiting_us = each_ms * 100}, now)) {
      ++sent.messages;
      sent.steps += total_of(*pace)->steps;
    }
  }
  return sent;
}

TEST(StepTimes, ShortStepsAreMergedIntoOneMessagePerSecond) {
  StepTimes times;
  StepTimes::Time now{milliseconds(1000)};
  EXPECT_TRUE(times.add({.step = 1, .own_us = 20'000, .waiting_us = 1'000, .data_us = 5}, now)) << "the first immediately";
  std::optional<Pace> pace;
  std::int64_t step = 1;
  while (!pace && step < 100) {  // the steps take 19 ms each, and six of them are combined into one entry
    now += milliseconds(19);
    pace = times.add({.step = ++step, .own_us = 18'000, .waiting_us = 1'000, .data_us = 2}, now);
  }
  EXPECT_EQ(step, 55) << "the first whole piece after a second";
  ASSERT_TRUE(pace);
  ASSERT_EQ(pace->times.size(), 9U);
  EXPECT_EQ(pace->times.back(), (StepTime{.step = 55, .steps = 6, .own_us = 108'000, .waiting_us = 6'000, .data_us = 12}));
}

TEST(StepTimes, RepeatedStepIsCountedOnce) {
  StepTimes times;
  StepTimes::Time now{milliseconds(1000)};
  EXPECT_TRUE(times.add({.step = 1, .own_us = 30'000}, now));
  EXPECT_FALSE(times.add({.step = 1, .own_us = 40'000, .waiting_us = 2'000, .data_us = 7}, now)) << "an evaluation after it";
  now += milliseconds(1000);
  const auto pace = times.add({.step = 2, .own_us = 30'000, .waiting_us = 1'000}, now);
  ASSERT_TRUE(pace);
  EXPECT_EQ(pace->times, (std::vector{StepTime{.step = 2, .own_us = 70'000, .waiting_us = 3'000, .data_us = 7}}));
  now += milliseconds(1000);
  EXPECT_EQ(times.add({.step = 3, .own_us = 30'000}, now)->times.back().own_us, 30'000);
}

TEST(StepTimes, SendsAtMostFiveMessagesPerSecond) {
  const Sent quick = add_steps(1000, 1);  // 1000 steps of 1 ms each
  EXPECT_EQ(quick.messages, 1);
  EXPECT_EQ(quick.steps, 1000);
  EXPECT_EQ(add_steps(50, 20).messages, 5) << "ten steps a message";
  const Sent slower = add_steps(20, 50);
  EXPECT_EQ(slower.messages, 4) << "five steps a message, so that a straggler is named within 20";
  EXPECT_EQ(slower.steps, 20);
  EXPECT_EQ(add_steps(10, 400).messages, 3) << "of 400 ms: three a message";
  EXPECT_EQ(add_steps(10, 2000).messages, 10) << "each";
}

TEST(StepTimes, ImpossibleNumbersHaveNoSum) {
  const auto total =
      total_of({.times = {{.step = 3, .steps = 2, .own_us = 5, .waiting_us = 6, .data_us = 1}, {.step = 4, .own_us = 1}}});
  EXPECT_EQ(total, (StepTime{.step = 4, .steps = 3, .own_us = 6, .waiting_us = 6, .data_us = 1}));
  EXPECT_FALSE(total_of({}));
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const StepTime& wrong : {StepTime{.step = -1}, StepTime{.steps = 0}, StepTime{.steps = kMax}, StepTime{.own_us = -1},
                                StepTime{.waiting_us = kMax}, StepTime{.data_us = -1}}) {
    EXPECT_FALSE(total_of({.times = {StepTime{.step = 1}, wrong}}));
  }
}

TEST(StepTimes, FullMessageIsSentEarly) {
  StepTimes times;
  const StepTimes::Time now{milliseconds(1000)};
  EXPECT_TRUE(times.add({.step = 1, .own_us = 20'000}, now));
  std::size_t sent = 0;
  for (std::int64_t step = 2; sent == 0; ++step) {
    if (const auto pace = times.add({.step = step, .own_us = 20'000}, now)) sent = pace->times.size();
  }
  EXPECT_EQ(sent, kMaxStepTimes);
}

}  // namespace
}  // namespace ddprun::channel
