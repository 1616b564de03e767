#include "launcher/scheduler_status/post_schedule.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(PostSchedule, SendsAtMostOnceAMinuteAndOnceAtTheEnd) {
  PostSchedule schedule;
  PostSchedule::Time now{};
  EXPECT_FALSE(schedule.is_due(now));
  EXPECT_FALSE(schedule.is_due_at_end());
  schedule.on_data();
  EXPECT_TRUE(schedule.is_due(now));
  schedule.on_start(now);
  EXPECT_FALSE(schedule.is_due_at_end());  // the last request contained the newest data
  schedule.on_data();
  EXPECT_FALSE(schedule.is_due(now + std::chrono::seconds(61)));  // the last request has not been answered yet
  schedule.on_done();
  EXPECT_FALSE(schedule.is_due(now + std::chrono::milliseconds(59'999)));
  EXPECT_TRUE(schedule.is_due(now + std::chrono::seconds(60)));
  EXPECT_TRUE(schedule.is_due_at_end());
}

}  // namespace
}  // namespace ddprun
