// SweepState: the guardian's observations and the time go in; the processes to end and to wait for come out.
#include "launcher/leftovers/sweep_state.hpp"

#include <gtest/gtest.h>

namespace ddprun::guardian {
namespace {

using std::chrono::milliseconds;
using How = SweepState::How;
using Ended = SweepState::Ended;
using Seen = SweepState::Seen;
using Pids = std::vector<pid_t>;

constexpr milliseconds kTimeout{30'000};

class SweepStateTest : public testing::Test {
 protected:
  SweepState::Orders order(How how, std::vector<Seen> seen, bool next_round = false, milliseconds timeout = kTimeout) {
    seen_ = std::move(seen);
    return state_.ordered({.how = how, .timeout = timeout, .next_round = next_round}, seen_, now_);
  }
  SweepState::Orders after(milliseconds time) { return state_.step(seen_, now_ += time); }
  SweepState::Orders now_there(std::vector<Seen> seen) {
    seen_ = std::move(seen);
    return state_.step(seen_, now_);
  }
  void worker_left(int worker, Ended how, std::vector<Seen> seen) {
    seen_ = std::move(seen);
    state_.worker_left(worker, how, seen_, now_);
  }
  bool keeps(int worker) const { return state_.keeps(worker, now_); }

  SweepState state_;
  std::vector<Seen> seen_;
  milliseconds now_{100'000};
};

TEST_F(SweepStateTest, AKillReachesAllUntilNoneIsLeft) {
  const auto first = order(How::kKill, {{.pid = 7}});
  EXPECT_TRUE(first.kill_cgroups);
  EXPECT_TRUE(first.kill_children);
  EXPECT_EQ(first.kill, Pids{7});
  EXPECT_FALSE(first.swept);
  const auto next = now_there({{.pid = 8}});  // its child is our child now
  EXPECT_TRUE(next.kill_children);
  EXPECT_FALSE(next.swept);
  EXPECT_FALSE(state_.take_end_of_round());
  EXPECT_TRUE(now_there({}).swept);
  EXPECT_TRUE(state_.take_end_of_round());
  EXPECT_FALSE(state_.take_end_of_round());
  EXPECT_FALSE(now_there({}).swept);  // reported once
}

TEST_F(SweepStateTest, WithoutALeftoverTheSweepIsOver) {
  EXPECT_TRUE(order(How::kEnd, {}).swept);
  EXPECT_TRUE(state_.take_end_of_round());
}

// Python's resource tracker removes the shared memory of a dead worker during this time.
TEST_F(SweepStateTest, AnOrphanHasAGracePeriodThenSigtermThenSigkill) {
  const auto first = order(How::kEnd, {{.pid = 7}});
  EXPECT_TRUE(first.terminate.empty() && first.kill.empty() && !first.kill_children);
  EXPECT_EQ(first.look_at, now_ + SweepState::kGrace);
  const auto grace = after(SweepState::kGrace);
  EXPECT_EQ(grace.terminate, Pids{7});
  EXPECT_EQ(grace.named, Pids{7});
  EXPECT_TRUE(grace.kill.empty());
  const auto late = after(SweepState::kGrace);
  EXPECT_EQ(late.kill, Pids{7});
  EXPECT_TRUE(late.named.empty());  // reported before
  EXPECT_TRUE(now_there({}).swept);
}

TEST_F(SweepStateTest, AnOrphanWithAHandlerHasTheShutdownTimeoutAfterSigterm) {
  order(How::kEnd, {{.pid = 7, .catches = true}});
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{7});
  EXPECT_TRUE(after(kTimeout - milliseconds(1)).kill.empty());
  EXPECT_EQ(after(milliseconds(1)).kill, Pids{7});
}

// SIGTERM was sent to every process, or SIGUSR1 through the agent: a second signal could disturb the save.
TEST_F(SweepStateTest, AnOrphanThatASignalHasReachedIsLeftAloneForTheTimeout) {
  order(How::kEnd, {{.pid = 7, .reached = true}}, /*next_round=*/true);
  EXPECT_TRUE(after(kTimeout - milliseconds(1)).terminate.empty());
  const auto end = after(milliseconds(1));
  EXPECT_EQ(end.kill, Pids{7});
  EXPECT_FALSE(end.swept);  // it may be saving, so the next round waits
}

TEST_F(SweepStateTest, TheNextRoundDoesNotWaitForAnOrphanThatHoldsNothing) {
  EXPECT_TRUE(order(How::kEnd, {{.pid = 7}}, /*next_round=*/true).swept);
  EXPECT_TRUE(state_.take_end_of_round());
  EXPECT_TRUE(state_.has_only_kept());
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{7});  // during the next round
  EXPECT_FALSE(now_there({}).swept);
}

TEST_F(SweepStateTest, TheNextRoundWaitsForADevice) {
  EXPECT_FALSE(order(How::kEnd, {{.pid = 7, .holds = true}}, /*next_round=*/true).swept);
  EXPECT_TRUE(now_there({}).swept);
}

TEST_F(SweepStateTest, AStopWaitsForAllThatItReachedUntilItsDeadline) {
  order(How::kStop, {{.pid = 7, .reached = true}, {.pid = 8, .catches = true}, {.pid = 9}});
  const auto first = after(milliseconds(0));
  EXPECT_TRUE(first.terminate.empty());  // process 8 got SIGTERM together with the order
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{9});
  EXPECT_TRUE(after(kTimeout - SweepState::kGrace - milliseconds(1)).kill.empty());
  EXPECT_EQ(after(milliseconds(1)).kill, (Pids{7, 8, 9}));
}

TEST_F(SweepStateTest, AStopGivesTheWholeTimeToWhatASweepWasAboutToEnd) {
  order(How::kEnd, {{.pid = 7, .reached = true}}, false, milliseconds(500));
  order(How::kStop, {{.pid = 7, .reached = true}});
  EXPECT_TRUE(after(milliseconds(600)).kill.empty());
}

TEST_F(SweepStateTest, APersonWhoInsistsKillsWhatAStopAwaits) {
  order(How::kStop, {{.pid = 7, .reached = true}});
  EXPECT_EQ(order(How::kKill, {{.pid = 7, .reached = true}}).kill, Pids{7});
}

TEST_F(SweepStateTest, AWorkerThatIsStoppedCountsAsRunningUntilNothingOfItIsLeft) {
  worker_left(0, Ended::kStopped, {{.pid = 7, .worker = 0, .reached = true}});
  EXPECT_TRUE(keeps(0));
  const auto orders = after(milliseconds(100'000));  // the deadline is the agent's task
  EXPECT_TRUE(orders.kill.empty() && orders.terminate.empty());
  EXPECT_TRUE(keeps(0));
  now_there({});
  EXPECT_FALSE(keeps(0));
}

// A shell's background processes ignore SIGINT.
TEST_F(SweepStateTest, AnInterruptThatALeftoverIgnoresIsFollowedBySigterm) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .connected = true}});
  state_.worker_stopped(0, /*reaches=*/false);
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{7});
  EXPECT_TRUE(keeps(0));
}

TEST_F(SweepStateTest, AStopThatReachesALeftoverIsNotRepeated) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .connected = true, .catches = true}});
  state_.worker_stopped(0, /*reaches=*/true);
  EXPECT_TRUE(after(SweepState::kGrace).terminate.empty());
  EXPECT_TRUE(keeps(0));
}

TEST_F(SweepStateTest, AStopGoesToALeftoverInASessionOfItsOwn) {
  worker_left(0, Ended::kStopped, {{.pid = 7, .worker = 0, .catches = true}, {.pid = 8, .worker = 0}});
  EXPECT_EQ(after(milliseconds(0)).terminate, Pids{7});
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{8});
}

TEST_F(SweepStateTest, AStartScriptThatExitedWith0CountsAsRunningWhileItsTrainerIsConnected) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0}});
  EXPECT_TRUE(keeps(0));  // it may connect soon
  now_there({{.pid = 7, .worker = 0, .connected = true}});
  after(milliseconds(3'600'000));
  EXPECT_TRUE(keeps(0));
  EXPECT_EQ(state_.works_for(0, now_), std::optional<pid_t>(7));
  now_there({{.pid = 7, .worker = 0}});  // it has closed its connection, and writes its results
  EXPECT_TRUE(keeps(0));
  now_there({});
  EXPECT_FALSE(keeps(0));
}

// A shell forks before it executes a command: for a moment the child has the shell's own command line.
TEST_F(SweepStateTest, ALeftoverThatWasTheWorkersProgramForAMomentIsNotAwaited) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .same_program = true}});
  EXPECT_TRUE(keeps(0));
  EXPECT_EQ(state_.works_for(0, now_), std::nullopt);
  now_there({{.pid = 7, .worker = 0}});
  after(SweepState::kGrace);
  EXPECT_FALSE(keeps(0));
}

TEST_F(SweepStateTest, ALeftoverThatRunsTheWorkersProgramIsAwaited) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .same_program = true}});
  after(SweepState::kGrace);
  EXPECT_EQ(state_.works_for(0, now_), std::optional<pid_t>(7));
  now_there({{.pid = 7, .worker = 0, .same_program = true, .busy = true}});
  after(milliseconds(3'600'000));
  EXPECT_TRUE(keeps(0));
}

// "while :; do nvidia-smi; sleep 10; done &" in a start script.
TEST_F(SweepStateTest, ALeftoverThatRunsTheWorkersProgramAndDoesNothingForAMinuteIsNotAwaited) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .same_program = true}});
  EXPECT_TRUE(after(SweepState::kIdle - milliseconds(1)).look_at.has_value());
  EXPECT_TRUE(keeps(0));
  after(milliseconds(1));
  EXPECT_FALSE(keeps(0));
  state_.forget_worker(0);
  EXPECT_EQ(order(How::kDone, {{.pid = 7, .worker = 0, .same_program = true}}).terminate, Pids{7});
}

TEST_F(SweepStateTest, AnotherLeftoverOfAWorkerThatExitedWith0HasTheGracePeriodOnly) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0}});
  after(SweepState::kGrace);
  EXPECT_FALSE(keeps(0));
  state_.forget_worker(0);
  EXPECT_EQ(order(How::kDone, {{.pid = 7, .worker = 0}}).terminate, Pids{7});
}

TEST_F(SweepStateTest, ALeftoverThatLoadsItsLibrariesHasAMinute) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .busy = true}});
  after(milliseconds(59'000));
  EXPECT_TRUE(keeps(0));
  after(milliseconds(1'000));
  EXPECT_FALSE(keeps(0));
  worker_left(1, Ended::kDone, {{.pid = 8, .worker = 1, .busy = true, .age = milliseconds(600'000)}});  // a daemon
  after(SweepState::kGrace);
  EXPECT_FALSE(keeps(1));
}

TEST_F(SweepStateTest, AWorkerThatFailedHasEnded) {
  worker_left(0, Ended::kFailed, {{.pid = 7, .worker = 0, .connected = true}});
  EXPECT_FALSE(keeps(0));
}

TEST_F(SweepStateTest, WhatARunningWorkerHasStartedIsLeftAlone) {
  worker_left(0, Ended::kStopped, {{.pid = 7, .worker = 1}});
  EXPECT_TRUE(state_.left_by(1).empty());
  EXPECT_FALSE(keeps(0));
}

TEST_F(SweepStateTest, AfterAJobThatIsDoneALeftoverThatWorksForItIsAwaited) {
  order(How::kDone, {{.pid = 7, .connected = true}, {.pid = 8}});
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{8});
  now_there({{.pid = 7, .connected = true}});
  const auto orders = after(milliseconds(3'600'000));
  EXPECT_TRUE(orders.kill.empty() && orders.terminate.empty() && !orders.swept);
  EXPECT_TRUE(now_there({}).swept);
}

TEST_F(SweepStateTest, NoSweepIsNeededWhereTheLastWorkerLeavesNothing) {
  EXPECT_FALSE(state_.last_worker_ended(true));
  EXPECT_FALSE(state_.take_end_of_round());
  EXPECT_TRUE(state_.last_worker_ended(false));
  EXPECT_TRUE(state_.take_end_of_round());
}

TEST_F(SweepStateTest, AfterTheGrantsEndWhateverComesUpIsKilledUntilThereIsAnother) {
  EXPECT_TRUE(state_.grant_ended().kill_children);
  EXPECT_TRUE(after(milliseconds(1)).kill_children);
  state_.grant_renewed();
  EXPECT_FALSE(after(milliseconds(1)).kill_children);
}

}  // namespace
}  // namespace ddprun::guardian
