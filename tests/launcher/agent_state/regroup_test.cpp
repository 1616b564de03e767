// Tests the loss of a worker while other workers survive: the bookkeeping in regroup.hpp, and the actions of the agent's state
// machine. Random tests cover unusual orders of events.
#include "launcher/agent_state/regroup.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <random>

#include "launcher/agent_state/agent_state.hpp"
#include "tests/launcher/agent_state/driven_agent.hpp"

namespace ddprun {
namespace {

using namespace agent_event;  // NOLINT: the test reads as a script
using std::chrono::milliseconds;
using Lines = std::vector<std::string>;

TEST(PendingRegroup, IsCompleteWhenAllRanksHaveJoined) {
  PendingRegroup regroup(3, {1}, {0, 2}, {});
  regroup.ready(0, 3, 120);
  regroup.ready(2, 3, 119);
  EXPECT_FALSE(regroup.joined(0, 3, 120, 3));
  EXPECT_FALSE(regroup.joined(0, 3, 120, 3));  // a second report of rank 0 is ignored
  EXPECT_FALSE(regroup.joined(2, 2, 100, 3));  // a report about an older process group is ignored
  EXPECT_FALSE(regroup.joined(2, 3, 120, 3));
  EXPECT_TRUE(regroup.joined(1, 3, 120, 3));
  EXPECT_EQ(regroup.keepers(), (std::vector<int>{0, 2}));
  EXPECT_EQ(regroup.replaced(), std::set<int>{1});
  EXPECT_EQ(regroup.step(), 120);
}

TEST(PendingRegroup, AnUnansweredRankJoinsTheSameLoss) {
  PendingRegroup regroup(1, {1}, {0, 2}, {});
  regroup.ready(0, 1, 7);
  EXPECT_TRUE(regroup.add_lost(2));
  EXPECT_FALSE(regroup.add_lost(0));  // rank 0 may already be in the new process group
  EXPECT_FALSE(regroup.add_lost(1));  // the replacement of rank 1 may already be in the new process group
  EXPECT_EQ(regroup.replaced(), (std::set<int>{1, 2}));
}

TEST(PendingRegroup, RanksWithoutStateAreNotKeepers) {
  PendingRegroup regroup(1, {1}, {0}, {});
  regroup.ready(0, 1, -1);
  EXPECT_TRUE(regroup.keepers().empty());
}

std::string text_of_regroup(const AgentAction& action) {
  const auto joined = [](const std::vector<int>& ranks) {
    std::string text;
    for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
    return text;
  };
  if (const auto* a = std::get_if<agent_action::StartRound>(&action)) return "start all " + std::to_string(a->restart_count);
  if (const auto* a = std::get_if<agent_action::StartWorker>(&action)) {
    return "start " + std::to_string(a->rank) + " restarts " + std::to_string(a->restart_count);
  }
  if (const auto* a = std::get_if<agent_action::SendMessage>(&action)) {
    const auto* regroup = std::get_if<channel::Regroup>(&a->message);
    if (regroup != nullptr) return "regroup " + joined(a->ranks) + " as " + std::to_string(regroup->generation);
    if (const auto* stop = std::get_if<channel::Stop>(&a->message)) {
      return (stop->mode == channel::Stop::Mode::kSave ? "save " : "now ") + joined(a->ranks);
    }
    return "send";
  }
  if (const auto* a = std::get_if<agent_action::SendSignal>(&action)) {
    return "signal " + joined(a->ranks) + " " + std::to_string(a->signal);
  }
  if (std::holds_alternative<agent_action::Sweep>(action)) return "sweep";
  if (const auto* a = std::get_if<agent_action::Finish>(&action)) return "finish " + std::to_string(a->exit_code);
  return "";
}

class RegroupingAgent : public test::DrivenAgent {
 protected:
  RegroupingAgent() : DrivenAgent(text_of_regroup) {}

  void job(int world, int max_restarts = 3, bool regroupable = true) {
    begin(world, max_restarts, /*standbys=*/0);
    if (regroupable) sends(0, channel::Regroupable{});
    for (int rank = 0; rank < world; ++rank) runs(rank, 0);
    for (int rank = 0; rank < world; ++rank) joined(rank, 0, 0);
    later(5000);
  }
  Lines exits(int rank, int code) { return on(WorkerExited{rank, 100 + rank, {.code = code}, now_.realtime_ns}); }
  Lines sends(int rank, channel::FromWorker message) { return on(WorkerMessageReceived{rank, std::move(message)}); }
  void runs(int rank, std::int64_t step) {
    sends(rank, channel::Hello{});
    sends(rank, channel::PhaseChange{.phase = channel::Phase::kRunning, .step = step});
  }
  Lines ready(int rank, int generation, std::int64_t step) { return sends(rank, channel::RegroupReady{generation, step}); }
  Lines joined(int rank, int generation, std::int64_t step) { return sends(rank, channel::GroupFormed{generation, step}); }
  // Reports that the replacement of rank `lost` has started, and then that all workers have joined the new process group.
  void completes(int generation, std::int64_t step, int lost) {
    sends(lost, channel::Hello{});
    for (int rank = 0; rank < world_; ++rank) {
      if (rank != lost) ready(rank, generation, step);
    }
    for (int rank = 0; rank < world_; ++rank) joined(rank, generation, step);
  }
};

TEST_F(RegroupingAgent, ReplacesALostWorker) {
  job(3);
  EXPECT_EQ(dies(1), (Lines{"regroup 0,2 as 1", "start 1 restarts 1"}));
  const RoundFailed failed = emitted<RoundFailed>().back();
  EXPECT_EQ(failed.decision, RoundFailed::Decision::kRegroup);
  EXPECT_EQ(failed.first.rank, 1);
  EXPECT_TRUE(emitted<RoundStarted>().back().regroup);
  EXPECT_TRUE(timers_.contains(AgentTimer::kRegroup));
  later(500);
  completes(1, 40, 1);
  const Regrouped done = emitted<Regrouped>().back();
  EXPECT_EQ(done.kept, (std::vector<int>{0, 2}));
  EXPECT_EQ(done.replaced, std::vector<int>{1});
  EXPECT_EQ(done.step, 40);
  EXPECT_GT(done.seconds, 0.5);
  EXPECT_TRUE(timers_.empty());
  for (int rank = 0; rank < 3; ++rank) exits(rank, 0);
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 0"});
  EXPECT_EQ(emitted<RunEnded>().back().restarts_used, 1);
}

TEST_F(RegroupingAgent, ReplacesSeveralLostWorkersAsOneRestart) {
  job(3);
  dies(1);
  EXPECT_EQ(dies(0), Lines{"start 0 restarts 1"});
  ready(2, 1, 40);
  for (int rank = 0; rank < 3; ++rank) joined(rank, 1, 40);
  EXPECT_EQ(emitted<Regrouped>().back().kept, std::vector<int>{2});
  EXPECT_EQ(emitted<Regrouped>().back().replaced, (std::vector<int>{0, 1}));
  EXPECT_EQ(emitted<RoundFailed>().size(), 1u);
}

TEST_F(RegroupingAgent, WithoutSurvivorsReplacementsFormTheGroup) {
  job(2);
  dies(1);
  EXPECT_EQ(dies(0), Lines{"start 0 restarts 1"});
  joined(0, 1, 35);
  joined(1, 1, 35);
  EXPECT_TRUE(emitted<Regrouped>().back().kept.empty());
  EXPECT_EQ(emitted<Regrouped>().back().step, 35);
}

TEST_F(RegroupingAgent, ASecondLossStartsAnotherRegroup) {
  job(3);
  dies(1);
  ready(0, 1, 40);
  ready(2, 1, 40);
  EXPECT_EQ(dies(2), (Lines{"regroup 0,1 as 2", "start 2 restarts 2"}));
  joined(0, 1, 40);  // this report is about the old process group, so it is ignored
  ready(0, 2, 40);
  ready(1, 2, -1);
  for (int rank = 0; rank < 3; ++rank) joined(rank, 2, 40);
  ASSERT_EQ(emitted<Regrouped>().size(), 1u);
  EXPECT_EQ(emitted<Regrouped>().back().kept, std::vector<int>{0});
}

TEST_F(RegroupingAgent, AFailedReplacementIsReplacedWithinTheBudget) {
  job(2, 3);
  dies(1);
  ready(0, 1, 40);
  EXPECT_EQ(dies(1), (Lines{"regroup 0 as 2", "start 1 restarts 2"}));
  ready(0, 2, 40);
  EXPECT_EQ(dies(1), Lines{"regroup 0 as 3"});  // the repeated losses count as a crash loop, so the next start is delayed
  EXPECT_EQ(timers_.at(AgentTimer::kReplace), milliseconds(500));
  EXPECT_EQ(on(TimerFired{AgentTimer::kReplace}), Lines{"start 1 restarts 3"});
  ready(0, 3, 40);
  EXPECT_EQ(dies(1), (Lines{"now 0", "signal 0 15"}));  // no restart, because the restart budget is spent
  EXPECT_EQ(dies(0, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 137"});
}

TEST_F(RegroupingAgent, SurvivorStepsRefillTheBudget) {
  job(2, 1);
  for (int loss = 1; loss <= 5; ++loss) {
    later(100);
    sends(0, channel::Progress{.step = 10 * loss});
    EXPECT_EQ(dies(1), (Lines{"regroup 0 as " + std::to_string(loss), "start 1 restarts " + std::to_string(loss)}));
    completes(loss, 10 * loss, 1);
  }
}

// In each round, rank 0 reports a later step and is then lost. But in each regroup, the state of rank 1 is at step 5. So the
// steps that rank 0 reports are not progress.
TEST_F(RegroupingAgent, ReportedStepsAloneRefillNothing) {
  job(2, 2);
  std::vector<std::string> why;
  for (int round = 1; round <= 3; ++round) {
    later(5000);
    sends(0, channel::Progress{.step = 10 * round});
    dies(0);
    completes(round, 5, 0);
    why.push_back(emitted<RoundFailed>().back().why);
  }
  // The first regroup counts as progress, because no step is known for an earlier round.
  EXPECT_EQ(why, (Lines{"restart 1 of 2: rank 0 is replaced", "restart 1 of 2: rank 0 is replaced",
                        "restart 2 of 2: rank 0 is replaced"}));
  sends(0, channel::Progress{.step = 40});
  EXPECT_EQ(dies(0), (Lines{"now 1", "signal 1 15"})) << "the budget is spent";
}

// In each round, both workers crash in the same call. Rank 0 has reported a different step each time, so the failures do not
// count as the same failure.
TEST_F(RegroupingAgent, CrashesOfAllWorkersUseTheBudget) {
  job(2, 3);
  int rounds = 0;
  for (const int step : {10, 15, 10, 20, 10, 15}) {
    sends(0, channel::Progress{.step = step});
    if (dies(0).front().starts_with("now")) break;  // the restart budget is spent
    if (timers_.contains(AgentTimer::kReplace)) on(TimerFired{AgentTimer::kReplace});
    dies(1);
    if (timers_.contains(AgentTimer::kReplace)) on(TimerFired{AgentTimer::kReplace});
    ++rounds;
    for (int rank = 0; rank < 2; ++rank) runs(rank, 0);
    for (int rank = 0; rank < 2; ++rank) joined(rank, rounds, 0);
    EXPECT_TRUE(emitted<Regrouped>().back().kept.empty());
  }
  EXPECT_EQ(rounds, 3);
  EXPECT_TRUE(emitted<RoundFailed>().back().why.starts_with("restart 3 of 3: rank 0 is replaced"));
}

TEST_F(RegroupingAgent, RepeatedFailureWithoutProgressEndsTheJob) {
  job(2);
  sends(0, channel::Progress{.step = 16});
  sends(1, channel::Progress{.step = 16});
  exits(1, 7);
  completes(1, 16, 1);
  sends(1, channel::PhaseChange{.phase = channel::Phase::kRunning, .step = 16});
  EXPECT_EQ(exits(1, 7), (Lines{"now 0", "signal 0 15"}));
  dies(0, SIGTERM);
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 83"});
}

TEST_F(RegroupingAgent, AHangingSurvivorRestartsAllWithinOneRestart) {
  job(3);
  dies(1);
  ready(0, 1, 40);
  EXPECT_EQ(on(TimerFired{AgentTimer::kRegroup}), (Lines{"now 0,1,2", "signal 0,1,2 15"}));
  EXPECT_EQ(emitted<RegroupFailed>().size(), 1u);
  dies(0, SIGTERM);
  dies(1, SIGTERM);
  EXPECT_EQ(on(TimerFired{AgentTimer::kKill}), Lines{"signal 2 9"});
  EXPECT_EQ(dies(2), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"start all 1"});
  EXPECT_EQ(emitted<RoundFailed>().size(), 1u);
}

TEST_F(RegroupingAgent, TheRegroupLimitIsTwiceTheStartTime) {
  job(2);
  later(50'000);
  joined(0, 0, 0);
  later(500);
  joined(1, 0, 0);
  dies(1);
  EXPECT_GE(timers_.at(AgentTimer::kRegroup), milliseconds(2 * 55'500));
}

TEST_F(RegroupingAgent, WorkersThatCannotRegroupAreAllRestarted) {
  job(2, 3, false);
  EXPECT_EQ(dies(1), (Lines{"now 0", "signal 0 15"}));
}

TEST_F(RegroupingAgent, AFinishedWorkerFailsTheRegroup) {
  job(2);
  dies(1);
  EXPECT_EQ(exits(0, 0), (Lines{"now 1", "signal 1 15"}));
  EXPECT_EQ(dies(1, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"start all 1"});
}

TEST_F(RegroupingAgent, ALossAfterOthersFinishedFailsTheRound) {
  job(2);
  exits(0, 0);
  EXPECT_EQ(dies(1), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"start all 1"});
}

TEST_F(RegroupingAgent, ASignalWaitsForTheRegroupThenSaves) {
  job(2);
  dies(1);
  EXPECT_EQ(on(SignalArrived{SIGTERM}), Lines{});
  EXPECT_EQ(timers_.at(AgentTimer::kRegroup), milliseconds(10000));
  sends(1, channel::Hello{});
  ready(0, 1, 40);
  joined(0, 1, 40);
  EXPECT_EQ(joined(1, 1, 40), Lines{"save 0,1"});
}

TEST_F(RegroupingAgent, ADelayedSignalSavesWithoutTheReplacement) {
  job(3);
  sends(0, channel::Progress{.step = 40});
  dies(1);
  on(SignalArrived{SIGTERM});
  ready(0, 1, 40);
  later(10000);
  EXPECT_EQ(on(TimerFired{AgentTimer::kRegroup}), (Lines{"signal 1 9", "regroup 0 as 2", "regroup 2 as 2", "save 0,2"}));
  EXPECT_EQ(timers_.at(AgentTimer::kSave), milliseconds(5000)) << "a half and a quarter of the time are gone or kept";
  EXPECT_TRUE(emitted<RegroupFailed>().empty()) << "nothing starts again";
  EXPECT_EQ(dies(1), Lines{});
  sends(0, channel::StopReady{40});
  EXPECT_EQ(sends(2, channel::StopReady{41}), Lines{"send"});
  sends(0, channel::CheckpointPublished{.step = 41});
  exits(0, 85);
  EXPECT_EQ(exits(2, 85), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 85"});
}

TEST_F(RegroupingAgent, SurvivorsSaveIfAReplacementFailsDuringAStop) {
  job(2);
  dies(1);
  ready(0, 1, 40);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(dies(1, SIGTERM), (Lines{"regroup 0 as 2", "save 0"}));  // the same signal has reached all processes of the job
  sends(0, channel::StopReady{40});
  EXPECT_EQ(exits(0, 85), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 85"});
}

TEST_F(RegroupingAgent, AStopDoesNotWaitForAPausedReplacement) {
  job(2);
  dies(1);
  ready(0, 1, 40);
  dies(1);
  ready(0, 2, 40);
  dies(1);  // third loss of rank 1, so its replacement starts only after a pause
  EXPECT_EQ(on(SignalArrived{SIGTERM}), (Lines{"regroup 0 as 4", "save 0"}));
  sends(0, channel::StopReady{40});
  EXPECT_EQ(exits(0, 85), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 85"});
}

TEST_F(RegroupingAgent, AStopWithoutSurvivorsEndsImmediately) {
  job(2);
  dies(1);
  dies(0);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(TimerFired{AgentTimer::kRegroup}), (Lines{"now 0,1", "signal 0,1 15"}));
  EXPECT_TRUE(emitted<RegroupFailed>().empty()) << "no round follows";
  dies(0, SIGTERM);
  dies(1, SIGTERM);
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 143"});
}

TEST_F(RegroupingAgent, AnAgentFailureDuringRegroupSavesTheSurvivors) {
  job(2);
  dies(1);
  EXPECT_EQ(on(AgentFailed{.exit_code = 89, .why = "a check", .running = {0, 1}}),
            (Lines{"signal 1 9", "regroup 0 as 2", "save 0"}));
  dies(1);
  sends(0, channel::StopReady{40});
  EXPECT_EQ(exits(0, 85), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 89"});
}

TEST_F(RegroupingAgent, ASecondSignalKillsRegroupingWorkers) {
  job(2);
  dies(1);
  on(SignalArrived{SIGINT});
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{"signal 0,1 9"});
  dies(0);
  EXPECT_EQ(dies(1), Lines{"sweep"});
}

// Ten workers are lost within fractions of a second, but the job finishes a step between any two losses. So this is not a
// crash loop. One more worker is lost later, and no step is finished before this loss. Even this worker is replaced
// immediately.
TEST_F(RegroupingAgent, LossesWithProgressBetweenThemCauseNoPause) {
  job(2, 100);
  for (int generation = 1; generation <= 10; ++generation) {
    runs(0, 10 * generation);
    EXPECT_EQ(dies(1).size(), 2U) << generation;
    completes(generation, 10 * generation, 1);
  }
  EXPECT_EQ(dies(0), (Lines{"regroup 1 as 11", "start 0 restarts 11"}));
}

TEST_F(RegroupingAgent, AnUnstartedReplacementIsNotAwaited) {
  job(2);
  dies(1);
  ready(0, 1, 40);
  dies(1);
  ready(0, 2, 40);
  dies(1);  // third loss of rank 1, so its replacement starts only after a pause
  on(SignalArrived{SIGINT});
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{"signal 0 9"});
  EXPECT_EQ(dies(0), Lines{"sweep"});
}

TEST_F(RegroupingAgent, UnrecoverableErrorsStopAllWorkers) {
  for (const auto kind : {channel::ErrorKind::kUsage, channel::ErrorKind::kDiverged}) {
    job(2);
    channel::WorkerError error;
    error.kind = kind;
    sends(1, error);
    EXPECT_EQ(exits(1, 2), (Lines{"now 0", "signal 0 15"})) << static_cast<int>(kind);
  }
}

class ReplacementWithoutData : public RegroupingAgent {
 protected:
  // The replacement of rank 1 finds no data, reports this error and exits.
  Lines finds_no_data(int code = 2) {
    channel::WorkerError error;
    error.kind = channel::ErrorKind::kUsage;
    error.message = "data set missing";
    sends(1, channel::Hello{});
    sends(1, error);
    return exits(1, code);
  }
};

TEST_F(ReplacementWithoutData, IsTriedAgainAfterAPauseThatGrows) {
  job(2);
  dies(1);
  ready(0, 1, 40);
  EXPECT_EQ(finds_no_data(), Lines{"regroup 0 as 2"});
  EXPECT_EQ(emitted<RoundFailed>().back().first.cause, Cause::kLateUsage);
  EXPECT_EQ(timers_.at(AgentTimer::kReplace), milliseconds(2000));
  EXPECT_EQ(on(TimerFired{AgentTimer::kReplace}), Lines{"start 1 restarts 2"});
  ready(0, 2, 40);
  EXPECT_EQ(finds_no_data(), Lines{"regroup 0 as 3"});
  EXPECT_EQ(timers_.at(AgentTimer::kReplace), milliseconds(4000));
  on(TimerFired{AgentTimer::kReplace});
  completes(3, 40, 1);
  EXPECT_EQ(emitted<Regrouped>().back().kept, std::vector<int>{0});
}

TEST_F(ReplacementWithoutData, SurvivorsSaveBeforeTheJobEnds) {
  job(3, 1);
  dies(1);
  ready(0, 1, 40);
  ready(2, 1, 40);
  EXPECT_EQ(finds_no_data(), (Lines{"regroup 0 as 2", "regroup 2 as 2", "save 0,2"}));
  sends(0, channel::StopReady{40});
  EXPECT_EQ(sends(2, channel::StopReady{41}), Lines{"send"});
  exits(0, 85);
  EXPECT_EQ(exits(2, 85), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 85"});
  EXPECT_NE(emitted<RunEnded>().back().why.find("have saved their state"), std::string::npos);
  EXPECT_EQ(emitted<RoundFailed>().back().first.message, "data set missing");
}

TEST_F(ReplacementWithoutData, ASignalDuringTheSaveIsIgnored) {
  job(2, 1);
  dies(1);
  ready(0, 1, 40);
  finds_no_data();
  on(SignalArrived{SIGTERM});
  sends(0, channel::StopReady{40});
  EXPECT_EQ(exits(0, 85), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 85"});
}

TEST_F(ReplacementWithoutData, SetsTheExitCodeIfTheSaveFails) {
  job(2, 1);
  dies(1);
  ready(0, 1, 40);
  EXPECT_EQ(finds_no_data(), (Lines{"regroup 0 as 2", "save 0"}));
  EXPECT_EQ(on(TimerFired{AgentTimer::kSave}), (Lines{"now 0", "signal 0 15"}));
  EXPECT_EQ(dies(0, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 2"});
}

TEST_F(ReplacementWithoutData, AUsageErrorAfterTrainingStopsAll) {
  job(2);
  EXPECT_EQ(finds_no_data(), (Lines{"now 0", "signal 0 15"}));
  EXPECT_EQ(dies(0, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 2"});
}

TEST_F(ReplacementWithoutData, BadDataAfterTrainingLetsTheOthersSave) {
  job(3);
  sends(1, channel::Progress{.step = 40});
  EXPECT_EQ(finds_no_data(), (Lines{"regroup 0 as 1", "regroup 2 as 1", "save 0,2"}));
  sends(0, channel::StopReady{40});
  sends(2, channel::StopReady{40});
  exits(0, 85);
  EXPECT_EQ(exits(2, 85), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 2"}) << "the next start will meet the same data";
  EXPECT_NE(emitted<RunEnded>().back().why.find("have saved their state"), std::string::npos);
}

// If two of three ranks have the same state, the third rank is corrupt. It is replaced, and the replacement gets the state of
// the other ranks. If the job has only two ranks, either of them may be corrupt, so no rank keeps its state.
TEST_F(RegroupingAgent, ACorruptRankIsReplacedUnlessOthersAreSuspect) {
  channel::WorkerError error;
  error.kind = channel::ErrorKind::kCorruptState;
  job(3);
  sends(1, error);
  EXPECT_EQ(exits(1, 88), (Lines{"regroup 0,2 as 1", "start 1 restarts 1"}));

  error.others_suspect = true;
  job(2);
  sends(1, error);
  sends(0, error);
  EXPECT_EQ(exits(1, 88), (Lines{"now 0", "signal 0 15"}));
  EXPECT_EQ(exits(0, 88), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"start all 1"});
  const auto failed = emitted<RoundFailed>().back();
  EXPECT_EQ(failed.first.cause, Cause::kCorruptState);
  EXPECT_EQ(failed.consequences.at(0).cause, Cause::kCorruptState);

  job(3);  // after the loss of rank 2, the two survivors find that their states differ
  dies(2);
  ready(0, 1, 40);
  ready(1, 1, 40);
  sends(1, error);
  EXPECT_EQ(exits(1, 88), (Lines{"now 0,2", "signal 0,2 15"}));
}

TEST_F(RegroupingAgent, OnlyRegroupableScriptsRegroup) {
  const AgentSettings of_program{.world_size = 2,
                                 .workers_have_channel = false,
                                 .shutdown_timeout = milliseconds(20000),
                                 .restarts = {.max_restarts = 3},
                                 .regroup_limit = milliseconds(60000),
                                 .standbys = 1};  // a spare interpreter cannot replace a lost worker
  state_.emplace(of_program);
  on(Begin{});
  EXPECT_EQ(dies(1), Lines{"signal 0 15"});

  state_.emplace(of_program);
  on(Begin{});
  for (const int rank : {0, 1}) sends(rank, channel::Regroupable{});
  on(StandbyReady{0});
  EXPECT_EQ(dies(1), (Lines{"regroup 0 as 1", "start 1 restarts 1"}));
  for (const int rank : {0, 1}) joined(rank, 1, 40);
  EXPECT_EQ(emitted<Regrouped>().back().replaced, std::vector<int>{1});
  for (const int rank : {0, 1}) exits(rank, 0);
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 0"});
}

// For any order of losses, answers, timers and signals, the job must end. It must never wait for an event that cannot occur.
TEST_F(RegroupingAgent, AnyOrderOfEventsEnds) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 chance(seed);
    const auto below = [&](int n) { return static_cast<int>(chance() % static_cast<unsigned>(n)); };
    events_.clear();
    timers_.clear();
    job(1 + below(4), below(5));
    std::set<int> alive;  // ranks whose worker process is running
    for (int rank = 0; rank < world_; ++rank) alive.insert(rank);
    bool sweeping = false, finished = false;
    int generation = 0;
    const auto carry_out = [&](const Lines& lines) {
      for (const std::string& line : lines) {
        if (line.starts_with("start all")) {
          for (int rank = 0; rank < world_; ++rank) EXPECT_TRUE(alive.insert(rank).second) << "seed " << seed;
        } else if (line.starts_with("start ")) {
          EXPECT_TRUE(alive.insert(line[6] - '0').second) << "seed " << seed << ": started while its predecessor runs";
        } else if (line.starts_with("regroup")) {
          generation = std::stoi(line.substr(line.rfind(' ') + 1));
        } else if (line == "sweep") {
          EXPECT_TRUE(alive.empty()) << "seed " << seed;
          sweeping = true;
        } else if (line.starts_with("finish")) {
          finished = true;
        }
      }
    };
    for (int turn = 0; turn < 400 && !finished; ++turn) {
      const int rank = below(world_);
      const bool late = turn > 100;  // later, events mostly end workers, so that the random test terminates
      if (std::exchange(sweeping, false)) {
        carry_out(on(RoundSwept{}));
      } else if (!timers_.empty() && below(late ? 2 : 10) == 0) {
        const AgentTimer timer = timers_.begin()->first;
        timers_.erase(timer);
        carry_out(on(TimerFired{timer}));
      } else if (below(60) == 0 || (late && below(8) == 0)) {
        carry_out(on(SignalArrived{below(2) == 0 ? SIGTERM : SIGINT}));
      } else if (alive.contains(rank)) {
        switch (below(late ? 2 : 8)) {
          case 0:
            alive.erase(rank);
            carry_out(dies(rank));
            break;
          case 1:
            alive.erase(rank);
            carry_out(exits(rank, 0));
            break;
          case 2:
          case 3:
            carry_out(ready(rank, generation, below(50) - 1));
            break;
          default:
            carry_out(joined(rank, generation, below(50)));
        }
      }
    }
    EXPECT_TRUE(finished) << "seed " << seed << " with " << alive.size() << " workers left";
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ddprun
