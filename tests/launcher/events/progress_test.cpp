// Tests the progress line: its number formats, the speed, and the remaining time.
#include "launcher/events/progress.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

channel::Progress half_way() {
  channel::Progress progress;
  progress.step = 512;
  progress.steps_total = 1407;
  progress.epoch = 1;
  progress.epochs = 3;
  progress.loss = 0.34125;
  progress.samples_per_s = 2209.6;
  return progress;
}

TEST(Duration, UsesLargerUnits) {
  EXPECT_EQ(format_duration(-1), "0.0 s");
  EXPECT_EQ(format_duration(0.44), "0.4 s");
  EXPECT_EQ(format_duration(9.99), "10 s");
  EXPECT_EQ(format_duration(83.4), "1 min 23 s");
  EXPECT_EQ(format_duration(7500), "2 h 05 min");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600), "3 d 04 h");
}

TEST(Count, SeparatesThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1407), "1,407");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(-123), "-123");
}

TEST(ProgressLine, ShowsKnownValues) {
  EXPECT_EQ(progress_line({.progress = half_way(), .seconds_left = 32.0}),
            "epoch 2/3  step 512/1,407  loss 0.3412  2,210 samples/s  32 s left");
  EXPECT_EQ(progress_line({.progress = half_way(), .loss_step = 500}),
            "epoch 2/3  step 512/1,407  loss 0.3412 at step 500  2,210 samples/s");
  EXPECT_EQ(progress_line({.progress = {.step = 5}}), "step 5");
  EXPECT_EQ(progress_line({.progress = {.step = 5, .loss = 0.5, .figures = {{"accuracy", 0.9125}, {"norm", 12.0}}}}),
            "step 5  loss 0.5000  accuracy 0.9125  norm 12");
  EXPECT_EQ(progress_line({.progress = {.step = 5, .figures = {{"a\x1b[2Jb", 1.0}}}}), "step 5  a\\u001b[2Jb 1")
      << "a script chooses the names";
}

TEST(ProgressBar, FillsTheRemainingWidth) {
  const std::string wide = progress_bar({.progress = half_way(), .seconds_left = 32.0}, 200);
  EXPECT_TRUE(wide.starts_with("[##########..................]  epoch 2/3")) << wide;
  for (int columns = 0; columns < 200; ++columns) {
    EXPECT_LE(progress_bar({.progress = half_way(), .seconds_left = 32.0}, columns).size(),
              static_cast<std::size_t>(std::max(columns - 1, 0)));
  }
}

TEST(ProgressMeter, UsesOnlyThisRound) {
  ProgressMeter meter;
  channel::Progress progress = half_way();
  progress.step = 1000;
  progress.steps_total = 1400;
  meter.add(progress, 1'000'000'000);
  EXPECT_FALSE(meter.shown().seconds_left);
  progress.step = 1100;
  meter.add(progress, 2'000'000'000);
  EXPECT_DOUBLE_EQ(meter.shown().seconds_left.value_or(0), 3.0);
  meter.restart();
  EXPECT_FALSE(meter.shown().seconds_left);
}

// Some scripts do not report their total number of steps, so the remaining time is unknown. The progress line must be updated
// even by a step without a log line. If it were not, training would seem to stall.
TEST(ProgressMeter, WithoutATotalThereIsNoEstimate) {
  ProgressMeter meter;
  meter.add({.step = 1}, 1'000'000'000);
  meter.add({.step = 2}, 2'000'000'000);
  EXPECT_FALSE(meter.shown().seconds_left);
}

TEST(ProgressMeter, HeartbeatsHaveASpeedAndOldLossesTheirStep) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  ProgressMeter meter;
  meter.add({.step = 1, .steps_total = 1000, .samples = 100, .loss = 2.5, .samples_per_s = 50}, kSecond);
  meter.add({.step = 2, .steps_total = 1000, .samples = 200}, kSecond + kSecond / 2);
  EXPECT_EQ(meter.shown().progress.samples_per_s, 50) << "half a second is too short for a speed";
  meter.add({.step = 5, .steps_total = 1000, .samples = 500}, 3 * kSecond);
  EXPECT_EQ(meter.shown().progress.samples_per_s, 200);
  EXPECT_EQ(meter.shown().progress.loss, 2.5);
  EXPECT_FALSE(meter.shown().loss_step) << "of two seconds ago";
  meter.add({.step = 13, .steps_total = 1000, .samples = 1300}, 7 * kSecond);
  EXPECT_EQ(meter.shown().progress.samples_per_s, 200);
  EXPECT_EQ(meter.shown().loss_step, 1);
  meter.add({.step = 20, .steps_total = 1000, .samples = 2000, .loss = 2.0, .samples_per_s = 190}, 8 * kSecond);
  EXPECT_EQ(meter.shown().progress.samples_per_s, 190);
  EXPECT_FALSE(meter.shown().loss_step);
  meter.add({.step = 7, .steps_total = 1000, .samples = 700}, 9 * kSecond);
  EXPECT_FALSE(meter.shown().progress.loss) << "training went back: nothing of what it was holds";
}

}  // namespace
}  // namespace ddprun
