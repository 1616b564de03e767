// Tests SweepState. Each test feeds the guardian's observations and the time, and checks which processes are terminated or
// awaited.
#include "launcher/leftovers/sweep_state.hpp"

#include <gtest/gtest.h>

namespace ddprun::guardian {
namespace {

using std::chrono::milliseconds;
using How = SweepState::How;
using Ended = SweepState::Ended;
using Observation = SweepState::Observation;
using Pids = std::vector<pid_t>;

constexpr milliseconds kTimeout{30'000};

class SweepStateTest : public testing::Test {
 protected:
  SweepState::Orders order(How how, std::vector<Observation> observed, bool next_round = false,
                           milliseconds timeout = kTimeout) {
    observed_ = std::move(observed);
    return state_.ordered({.how = how, .timeout = timeout, .next_round = next_round}, observed_, now_);
  }
  SweepState::Orders after(milliseconds time) { return state_.step(observed_, now_ += time); }
  SweepState::Orders step_with(std::vector<Observation> observed) {
    observed_ = std::move(observed);
    return state_.step(observed_, now_);
  }
  void worker_left(int worker, Ended how, std::vector<Observation> observed) {
    observed_ = std::move(observed);
    state_.worker_left(worker, how, observed_, now_);
  }
  bool counts_as_running(int worker) const { return state_.counts_as_running(worker, now_); }

  SweepState state_;
  std::vector<Observation> observed_;
  milliseconds now_{100'000};
};

TEST_F(SweepStateTest, AKillIsRepeatedUntilNoneIsLeft) {
  const auto first = order(How::kKill, {{.pid = 7}});
  EXPECT_TRUE(first.kill_cgroups);
  EXPECT_TRUE(first.kill_children);
  EXPECT_EQ(first.kill, Pids{7});
  EXPECT_FALSE(first.swept);
  const auto next = step_with({{.pid = 8}});  // the parent of process 8 was process 7, and is now the guardian
  EXPECT_TRUE(next.kill_children);
  EXPECT_FALSE(next.swept);
  EXPECT_FALSE(state_.take_end_of_round());
  EXPECT_TRUE(step_with({}).swept);
  EXPECT_TRUE(state_.take_end_of_round());
  EXPECT_FALSE(state_.take_end_of_round());
  EXPECT_FALSE(step_with({}).swept);  // the end of the sweep is reported once
}

TEST_F(SweepStateTest, WithoutLeftoversTheSweepIsOver) {
  EXPECT_TRUE(order(How::kEnd, {}).swept);
  EXPECT_TRUE(state_.take_end_of_round());
}

// During the grace period, Python's resource tracker can remove the shared memory of a dead worker.
TEST_F(SweepStateTest, AnOrphanGetsGraceSigtermThenSigkill) {
  const auto first = order(How::kEnd, {{.pid = 7}});
  EXPECT_TRUE(first.terminate.empty() && first.kill.empty() && !first.kill_children);
  EXPECT_EQ(first.scan_at, now_ + SweepState::kGrace);
  const auto grace = after(SweepState::kGrace);
  EXPECT_EQ(grace.terminate, Pids{7});
  EXPECT_EQ(grace.named, Pids{7});
  EXPECT_TRUE(grace.kill.empty());
  const auto late = after(SweepState::kGrace);
  EXPECT_EQ(late.kill, Pids{7});
  EXPECT_TRUE(late.named.empty());  // process 7 was reported before
  EXPECT_TRUE(step_with({}).swept);
}

TEST_F(SweepStateTest, AnOrphanWithAHandlerGetsTheShutdownTimeout) {
  order(How::kEnd, {{.pid = 7, .handles_sigterm = true}});
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{7});
  EXPECT_TRUE(after(kTimeout - milliseconds(1)).kill.empty());
  EXPECT_EQ(after(milliseconds(1)).kill, Pids{7});
}

// The orphan has already received a signal: SIGTERM that was sent to all processes, or SIGUSR1 that the agent forwarded. A
// second signal could disturb the save of the orphan.
TEST_F(SweepStateTest, ASignalledOrphanGetsTheTimeout) {
  order(How::kEnd, {{.pid = 7, .reached = true}}, /*next_round=*/true);
  EXPECT_TRUE(after(kTimeout - milliseconds(1)).terminate.empty());
  const auto end = after(milliseconds(1));
  EXPECT_EQ(end.kill, Pids{7});
  EXPECT_FALSE(end.swept);  // process 7 may still be saving, so the next round must wait
}

// A shell has just forked the orphan, so the orphan still has the signal handler of the shell. Then the orphan executes a
// program that has no handlers.
TEST_F(SweepStateTest, AnOrphanThatExecutesItsProgramHasReceivedNoSignal) {
  const auto first = order(How::kEnd, {{.pid = 7, .reached = true, .program = 1}}, /*next_round=*/true);
  EXPECT_EQ(first.scan_at, now_ + SweepState::kGrace);  // the scan does not wait for the end of the timeout
  now_ += SweepState::kGrace;
  EXPECT_EQ(step_with({{.pid = 7, .program = 2}}).terminate, Pids{7});
}

TEST_F(SweepStateTest, TheNextRoundIgnoresOrphansWithoutResources) {
  EXPECT_TRUE(order(How::kEnd, {{.pid = 7}}, /*next_round=*/true).swept);
  EXPECT_TRUE(state_.take_end_of_round());
  EXPECT_TRUE(state_.has_only_kept());
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{7});  // the next round is already running when process 7 gets SIGTERM
  EXPECT_FALSE(step_with({}).swept);
}

TEST_F(SweepStateTest, TheNextRoundWaitsForADevice) {
  EXPECT_FALSE(order(How::kEnd, {{.pid = 7, .holds = true}}, /*next_round=*/true).swept);
  EXPECT_TRUE(step_with({}).swept);
}

TEST_F(SweepStateTest, AStopAwaitsSignalledLeftoversUntilItsDeadline) {
  order(How::kStop, {{.pid = 7, .reached = true}, {.pid = 8, .handles_sigterm = true}, {.pid = 9}});
  const auto first = after(milliseconds(0));
  EXPECT_TRUE(first.terminate.empty());  // process 8 handles the SIGTERM that it received when the stop started
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{9});
  EXPECT_TRUE(after(kTimeout - SweepState::kGrace - milliseconds(1)).kill.empty());
  EXPECT_EQ(after(milliseconds(1)).kill, (Pids{7, 8, 9}));
}

TEST_F(SweepStateTest, AStopExtendsARunningSweep) {
  order(How::kEnd, {{.pid = 7, .reached = true}}, false, milliseconds(500));
  order(How::kStop, {{.pid = 7, .reached = true}});
  EXPECT_TRUE(after(milliseconds(600)).kill.empty());
}

TEST_F(SweepStateTest, ARepeatedInterruptKillsAwaitedLeftovers) {
  order(How::kStop, {{.pid = 7, .reached = true}});
  EXPECT_EQ(order(How::kKill, {{.pid = 7, .reached = true}}).kill, Pids{7});
}

TEST_F(SweepStateTest, AStoppedWorkerRunsUntilItsLeftoversEnd) {
  worker_left(0, Ended::kStopped, {{.pid = 7, .worker = 0, .reached = true}});
  EXPECT_TRUE(counts_as_running(0));
  const auto orders = after(milliseconds(100'000));  // only the agent enforces the deadline of a stop
  EXPECT_TRUE(orders.kill.empty() && orders.terminate.empty());
  EXPECT_TRUE(counts_as_running(0));
  step_with({});
  EXPECT_FALSE(counts_as_running(0));
}

// Background processes of a shell ignore SIGINT. So they get SIGTERM after SIGINT.
TEST_F(SweepStateTest, AnIgnoredInterruptIsFollowedBySigterm) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .connected = true}});
  state_.worker_stopped(0, /*reaches=*/false);
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{7});
  EXPECT_TRUE(counts_as_running(0));
}

TEST_F(SweepStateTest, AReceivedStopIsNotRepeated) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .connected = true, .handles_sigterm = true}});
  state_.worker_stopped(0, /*reaches=*/true);
  EXPECT_TRUE(after(SweepState::kGrace).terminate.empty());
  EXPECT_TRUE(counts_as_running(0));
}

TEST_F(SweepStateTest, AStopReachesALeftoverInItsOwnSession) {
  worker_left(0, Ended::kStopped, {{.pid = 7, .worker = 0, .handles_sigterm = true}, {.pid = 8, .worker = 0}});
  EXPECT_EQ(after(milliseconds(0)).terminate, Pids{7});
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{8});
}

TEST_F(SweepStateTest, AnExitedStartScriptRunsWhileItsTrainerIsConnected) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0}});
  EXPECT_TRUE(counts_as_running(0));  // process 7 may still connect to the agent
  step_with({{.pid = 7, .worker = 0, .connected = true}});
  after(milliseconds(3'600'000));
  EXPECT_TRUE(counts_as_running(0));
  EXPECT_EQ(state_.works_for(0, now_), std::optional<pid_t>(7));
  step_with({{.pid = 7, .worker = 0}});  // process 7 has disconnected, but may still write its results
  EXPECT_TRUE(counts_as_running(0));
  step_with({});
  EXPECT_FALSE(counts_as_running(0));
}

// A shell forks before it executes a command. For a moment the child still has the command line of the shell.
TEST_F(SweepStateTest, AForkBeforeExecIsNotAwaited) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .same_program = true}});
  EXPECT_TRUE(counts_as_running(0));
  EXPECT_EQ(state_.works_for(0, now_), std::nullopt);
  step_with({{.pid = 7, .worker = 0}});
  after(SweepState::kGrace);
  EXPECT_FALSE(counts_as_running(0));
}

TEST_F(SweepStateTest, ALeftoverWithTheWorkersProgramIsAwaited) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .same_program = true}});
  after(SweepState::kGrace);
  EXPECT_EQ(state_.works_for(0, now_), std::optional<pid_t>(7));
  step_with({{.pid = 7, .worker = 0, .same_program = true, .busy = true}});
  after(milliseconds(3'600'000));
  EXPECT_TRUE(counts_as_running(0));
}

// A start script may leave behind a process that runs the same program as the worker, for example the loop "while :; do
// nvidia-smi; sleep 10; done &".
TEST_F(SweepStateTest, AnIdleLeftoverWithTheWorkersProgramIsNotAwaited) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .same_program = true}});
  EXPECT_TRUE(after(SweepState::kIdle - milliseconds(1)).scan_at.has_value());
  EXPECT_TRUE(counts_as_running(0));
  after(milliseconds(1));
  EXPECT_FALSE(counts_as_running(0));
  state_.forget_worker(0);
  EXPECT_EQ(order(How::kDone, {{.pid = 7, .worker = 0, .same_program = true}}).terminate, Pids{7});
}

TEST_F(SweepStateTest, OtherLeftoversGetOnlyTheGracePeriod) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0}});
  after(SweepState::kGrace);
  EXPECT_FALSE(counts_as_running(0));
  state_.forget_worker(0);
  EXPECT_EQ(order(How::kDone, {{.pid = 7, .worker = 0}}).terminate, Pids{7});
}

TEST_F(SweepStateTest, ALoadingLeftoverHasAMinute) {
  worker_left(0, Ended::kDone, {{.pid = 7, .worker = 0, .busy = true}});
  after(milliseconds(59'000));
  EXPECT_TRUE(counts_as_running(0));
  after(milliseconds(1'000));
  EXPECT_FALSE(counts_as_running(0));
  // Process 8 is busy, but it is too old to be starting. So it is a daemon.
  worker_left(1, Ended::kDone, {{.pid = 8, .worker = 1, .busy = true, .age = milliseconds(600'000)}});
  after(SweepState::kGrace);
  EXPECT_FALSE(counts_as_running(1));
}

TEST_F(SweepStateTest, AFailedWorkerHasEnded) {
  worker_left(0, Ended::kFailed, {{.pid = 7, .worker = 0, .connected = true}});
  EXPECT_FALSE(counts_as_running(0));
}

TEST_F(SweepStateTest, ChildrenOfARunningWorkerAreIgnored) {
  worker_left(0, Ended::kStopped, {{.pid = 7, .worker = 1}});
  EXPECT_TRUE(state_.left_by(1).empty());
  EXPECT_FALSE(counts_as_running(0));
}

TEST_F(SweepStateTest, AfterSuccessWorkingLeftoversAreAwaited) {
  order(How::kDone, {{.pid = 7, .connected = true}, {.pid = 8}});
  EXPECT_EQ(after(SweepState::kGrace).terminate, Pids{8});
  step_with({{.pid = 7, .connected = true}});
  const auto orders = after(milliseconds(3'600'000));
  EXPECT_TRUE(orders.kill.empty() && orders.terminate.empty() && !orders.swept);
  EXPECT_TRUE(step_with({}).swept);
}

TEST_F(SweepStateTest, NoSweepIsNeededWithoutLeftovers) {
  EXPECT_FALSE(state_.last_worker_ended(true));
  EXPECT_FALSE(state_.take_end_of_round());
  EXPECT_TRUE(state_.last_worker_ended(false));
  EXPECT_TRUE(state_.take_end_of_round());
}

TEST_F(SweepStateTest, WithoutALeaseNewProcessesAreKilled) {
  EXPECT_TRUE(state_.on_lease_expired().kill_children);
  EXPECT_TRUE(after(milliseconds(1)).kill_children);
  state_.on_lease_renewed();
  EXPECT_FALSE(after(milliseconds(1)).kill_children);
}

}  // namespace
}  // namespace ddprun::guardian
