// Tests the timers of FileTimerClient in PyTorch: how its lines are parsed, and which workers are overdue. Also tests the
// detection of workers that the kernel cannot kill.
#include "launcher/file_timers/file_timers.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "launcher/leftovers/stuck_workers.hpp"

namespace ddprun {
namespace {

using Requests = std::vector<TimerRequest>;

TEST(TimerRequestLine, ParsesLinesOfTheClient) {
  const auto request =
      parse_timer_request(R"({"version": 1, "pid": 42, "scope_id": "step", "expiration_time": 1700000000.5, "signal": 9})");
  EXPECT_EQ(request, (TimerRequest{42, "step", 1700000000.5, 9}));
  EXPECT_EQ(parse_timer_request(R"({"version": 1, "pid": 42, "scope_id": "s", "expiration_time": -1, "signal": 0})"),
            (TimerRequest{42, "s", -1, 0}));
}

TEST(TimerRequestLine, OtherLinesAreIgnored) {
  for (const char* line :
       {"", "{", "[]", "3", R"({"pid": 1})", R"({"pid": "1", "scope_id": "s", "expiration_time": 1, "signal": 9})",
        R"({"pid": 1, "scope_id": 2, "expiration_time": 1, "signal": 9})",
        R"({"pid": 1, "scope_id": "s", "expiration_time": "1", "signal": 9})"}) {
    EXPECT_FALSE(parse_timer_request(line)) << line;
  }
}

TEST(FileTimers, AReleasedTimerNeverExpires) {
  FileTimers timers;
  timers.on({1, "a", 10, 9});
  timers.on({1, "b", 20, 9});
  EXPECT_EQ(timers.next(), 10);
  timers.on({1, "a", -1, 0});
  EXPECT_EQ(timers.next(), 20);
  EXPECT_EQ(timers.take_overdue(19), Requests{});
  EXPECT_EQ(timers.take_overdue(20), (Requests{{1, "b", 20, 9}}));
  EXPECT_EQ(timers.next(), std::nullopt);
}

TEST(FileTimers, ATimerSetAgainHasTheNewTime) {
  FileTimers timers;
  timers.on({1, "a", 10, 9});
  timers.on({1, "a", 30, 9});
  EXPECT_EQ(timers.take_overdue(20), Requests{});
}

TEST(FileTimers, OneTimerWithASignalPerProcessIsReported) {
  FileTimers timers;
  timers.on({1, "no signal", 5, 0});
  timers.on({1, "second", 8, 9});
  timers.on({1, "first", 7, 15});
  timers.on({1, "later", 99, 9});
  timers.on({2, "another", 6, 9});
  timers.on({3, "not yet", 50, 9});
  EXPECT_EQ(timers.take_overdue(10), (Requests{{1, "first", 7, 15}, {2, "another", 6, 9}}));
  EXPECT_EQ(timers.next(), 50);  // take_overdue() has returned process 1, and has dropped all timers of that process
}

TEST(FileTimers, TimersWithoutASignalAreNeverOverdue) {
  FileTimers timers;
  timers.on({1, "a", 5, 0});
  EXPECT_EQ(timers.take_overdue(10), Requests{});
  EXPECT_EQ(timers.next(), std::nullopt);
}

TEST(StuckTimeout, IsParsedLikeTorchrun) {
  EXPECT_EQ(stuck_timeout_of("2.5"), std::chrono::milliseconds(2500));
  for (const char* off : {"", "0", "-1", "soon", "3 s"}) EXPECT_EQ(stuck_timeout_of(off).count(), 0) << off;
  EXPECT_EQ(stuck_timeout_of(std::nullopt).count(), 0);
}

TEST(StuckWatch, OnlyAnUninterruptedSleepCounts) {
  using std::chrono::milliseconds;
  StuckWatch watch(milliseconds(100));
  const StuckWatch::Time start{};
  EXPECT_FALSE(watch.observe(0, 'D', start));
  EXPECT_FALSE(watch.observe(0, 'S', start + milliseconds(50)));
  EXPECT_FALSE(watch.observe(0, 'D', start + milliseconds(60)));
  EXPECT_FALSE(watch.observe(0, 'D', start + milliseconds(150)));
  EXPECT_FALSE(watch.observe(1, 'D', start + milliseconds(160)));
  EXPECT_TRUE(watch.observe(0, 'D', start + milliseconds(160)));
  EXPECT_FALSE(watch.observe(0, 'D', start + milliseconds(500)));  // each worker is reported once
}

TEST(ProcessState, OfThisProcessAndOfNone) {
  EXPECT_EQ(process_state(::getpid()), 'R');
  EXPECT_EQ(process_state(0), '\0');
}

}  // namespace
}  // namespace ddprun
