// Tests how the time of a run is divided into parts. Each second must be counted once, and this must not depend on the order
// in which the ranks report.
#include "launcher/report/time_account.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace ddprun {
namespace {

using channel::Phase;
constexpr std::int64_t kAccountSecond = 1'000'000'000;

class TimeAccountTest : public ::testing::Test {
 protected:
  void start(int round, std::int64_t second) {
    account_.on(RoundStarted{.round = round, .restart_count = round, .world_size = 2, .time_ns = second * kAccountSecond});
    for (int rank = 0; rank < 2; ++rank) account_.on(WorkerStarted{rank, rank, 100 + rank, second * kAccountSecond});
  }
  void sends(int rank, Phase phase, std::int64_t step, std::int64_t second) {
    account_.on(WorkerReported{rank, channel::PhaseChange{phase, step, 0}, second * kAccountSecond});
  }
  void steps(int rank, std::int64_t step, std::int64_t second) {
    account_.on(WorkerReported{rank, channel::Progress{.step = step, .steps_total = 100}, second * kAccountSecond});
  }
  double of(TimeAccount::Part part) const { return account_.seconds()[static_cast<std::size_t>(part)]; }

  TimeAccount account_;
};

TEST_F(TimeAccountTest, StepsOfOtherRanksDoNotEndTheEvaluation) {
  account_.on(RunStarted{.time_ns = 1 * kAccountSecond, .world_size = 2});
  start(0, 3);
  sends(1, Phase::kRunning, 0, 5);
  sends(0, Phase::kEvaluating, 10, 9);
  steps(1, 10, 10);
  sends(1, Phase::kRunning, 10, 11);
  sends(0, Phase::kRunning, 10, 12);
  account_.on(RunEnded{.exit_code = 0, .why = "done", .restarts_used = 0, .time_ns = 20 * kAccountSecond});
  EXPECT_DOUBLE_EQ(of(TimeAccount::Part::kWaiting), 2);
  EXPECT_DOUBLE_EQ(of(TimeAccount::Part::kStart), 2);
  EXPECT_DOUBLE_EQ(of(TimeAccount::Part::kEvaluation), 3);
  EXPECT_DOUBLE_EQ(of(TimeAccount::Part::kTraining), 4 + 8);
  EXPECT_DOUBLE_EQ(std::accumulate(account_.seconds().begin(), account_.seconds().end(), 0.0), 19);
}

TEST_F(TimeAccountTest, SettingTheClockAddsNoTime) {
  constexpr std::int64_t kSetBy = 3600;
  account_.on(RunStarted{.time_ns = 10000 * kAccountSecond, .world_size = 2});
  start(0, 10002);
  sends(0, Phase::kRunning, 0, 10005);
  const RunEnded forwards{.exit_code = 0, .why = "done", .restarts_used = 0, .time_ns = (10009 + kSetBy) * kAccountSecond};
  account_.on(forwards, kSetBy * kAccountSecond);
  EXPECT_DOUBLE_EQ(of(TimeAccount::Part::kTraining), 4);
  const RunEnded back{.exit_code = 0, .why = "done", .restarts_used = 0, .time_ns = (10020 - kSetBy) * kAccountSecond};
  account_.on(back, -kSetBy * kAccountSecond);
  EXPECT_DOUBLE_EQ(of(TimeAccount::Part::kTraining), 15);
}

// The event of the worker's start has a timestamp from before the clock was set, but the event is processed after that. The
// change of the clock must not add or remove time.
TEST_F(TimeAccountTest, SettingTheClockAfterAnEventAddsNoTime) {
  for (const std::int64_t set_by : {86400, -86400}) {
    account_ = TimeAccount();
    account_.on(RunStarted{.time_ns = 100000 * kAccountSecond, .world_size = 2});
    account_.on(RoundStarted{.round = 0, .restart_count = 0, .world_size = 1, .time_ns = 100002 * kAccountSecond});
    account_.on(WorkerStarted{0, 0, 100, 100003 * kAccountSecond}, set_by * kAccountSecond, 100004 * kAccountSecond);
    account_.on(RunEnded{.exit_code = 0, .why = "done", .restarts_used = 0, .time_ns = (100010 + set_by) * kAccountSecond},
                set_by * kAccountSecond, 100010 * kAccountSecond);
    const double sum = std::accumulate(account_.seconds().begin(), account_.seconds().end(), 0.0);
    EXPECT_DOUBLE_EQ(sum, 10) << set_by;
  }
}

TEST_F(TimeAccountTest, WorkersWithoutAChannelTrainFromTheStart) {
  account_.on(RunStarted{.time_ns = 1 * kAccountSecond, .world_size = 2});
  start(0, 2);
  account_.on(RunEnded{.exit_code = 0, .why = "done", .restarts_used = 0, .time_ns = 7 * kAccountSecond});
  EXPECT_DOUBLE_EQ(of(TimeAccount::Part::kTraining), 5);
}

TEST_F(TimeAccountTest, ARoundThatNeverRanHasNoSteps) {
  account_.on(RunStarted{.time_ns = 1 * kAccountSecond, .world_size = 2});
  start(0, 2);
  sends(0, Phase::kRunning, 7, 3);
  steps(0, 9, 4);
  EXPECT_EQ(account_.round().from_step, 7);
  EXPECT_EQ(account_.round().reached_step, 9);
  Failure lost;
  lost.time_ns = 5 * kAccountSecond;
  account_.on(RoundFailed{0, lost, {}, RoundFailed::Decision::kRestart, "again", 5 * kAccountSecond});
  start(1, 6);
  sends(0, Phase::kStarting, 0, 7);
  EXPECT_EQ(account_.round().from_step, -1);
  EXPECT_DOUBLE_EQ(of(TimeAccount::Part::kRestart), 0);  // the restart is not complete yet, so no time is counted for it
  sends(0, Phase::kRunning, 7, 9);
  EXPECT_DOUBLE_EQ(of(TimeAccount::Part::kRestart), 4);
}

TEST(TimeAccount, ContinuesFromEarlierSums) {
  TimeAccount account(TimeAccount::Seconds{1, 2, 3, 4, 5, 6});
  account.on(RunStarted{.time_ns = kAccountSecond, .world_size = 1});
  account.on(RunEnded{.exit_code = 1, .why = "", .restarts_used = 0, .time_ns = 2 * kAccountSecond});
  EXPECT_EQ(account.seconds(), (TimeAccount::Seconds{2, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace ddprun
