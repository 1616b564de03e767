// Tests held workers (held_workers.hpp): workers of one node of a multi-node job that keep their state between two rounds.
// There is a test for each way in which the agent can stop holding the workers.
#include <gtest/gtest.h>

#include <csignal>
#include <random>
#include <set>

#include "launcher/agent_state/agent_state.hpp"
#include "tests/launcher/agent_state/driven_agent.hpp"

namespace ddprun {
namespace {

using namespace agent_event;  // NOLINT: the test reads as a script
using std::chrono::milliseconds;
using Lines = std::vector<std::string>;

std::string listed(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

std::string text_of_hold(const AgentAction& action) {
  if (std::holds_alternative<agent_action::StartRound>(action)) return "start all";
  if (std::holds_alternative<agent_action::ContinueRound>(action)) return "continue";
  if (const auto* a = std::get_if<agent_action::StartWorker>(&action)) return "start " + std::to_string(a->rank);
  if (const auto* a = std::get_if<agent_action::SendMessage>(&action)) {
    if (std::holds_alternative<channel::Hold>(a->message)) return "hold " + listed(a->ranks);
    if (const auto* regroup = std::get_if<channel::Regroup>(&a->message)) {
      return "regroup " + listed(a->ranks) + " as " + std::to_string(regroup->rank) + " of " +
             std::to_string(regroup->world_size) + ", node " + std::to_string(regroup->group_rank) + " of " +
             std::to_string(regroup->group_world_size) + ", in " + std::to_string(regroup->generation);
    }
    const auto* stop = std::get_if<channel::Stop>(&a->message);
    if (stop == nullptr) return "send";
    return (stop->mode == channel::Stop::Mode::kSave ? "save " : "now ") + listed(a->ranks);
  }
  if (const auto* a = std::get_if<agent_action::SendSignal>(&action)) {
    return "signal " + listed(a->ranks) + " " + std::to_string(a->signal);
  }
  if (const auto* a = std::get_if<agent_action::ReportFailure>(&action)) {
    return "report " + std::to_string(a->failure.rank) + (a->others_stay ? ", others stay" : "");
  }
  if (const auto* a = std::get_if<agent_action::ReportSteps>(&action)) {
    return "steps " + std::to_string(a->started);
  }
  if (const auto* a = std::get_if<agent_action::ReportRoundOver>(&action)) {
    if (a->holds) return "over, holding";
    return a->how == agent_action::ReportRoundOver::How::kSaved ? "saved" : "over";
  }
  if (std::holds_alternative<agent_action::Sweep>(action)) return "sweep";
  if (const auto* a = std::get_if<agent_action::Finish>(&action)) return "finish " + std::to_string(a->exit_code);
  return "";
}

StopOrdered ordered(const char* why, bool hold) {
  StopOrdered order;
  order.why = why;
  order.hold = hold;
  return order;
}

// The second node of a two-node job with three workers per node. The workers of this node have ranks 3, 4 and 5 of 6.
class HoldingMember : public test::DrivenAgent {
 protected:
  HoldingMember() : DrivenAgent(text_of_hold) { job(); }

  void job(std::chrono::milliseconds regroup_limit = milliseconds(60000), bool regroupable = true, int workers = 3) {
    events_.clear();
    timers_.clear();
    world_ = workers;
    state_.emplace(AgentSettings{.world_size = workers,
                                 .mode = AgentSettings::Mode::kMember,
                                 .workers_have_channel = true,
                                 .shutdown_timeout = milliseconds(20000),
                                 .restarts = {.max_restarts = 3, .refill_by_progress = true},
                                 .regroup_limit = regroup_limit});
    on(Begin{});
    released(0, 0);
    for (int rank = 0; rank < workers; ++rank) sends(rank, channel::Hello{});
    if (regroupable) sends(0, channel::Regroupable{});
    for (int rank = 0; rank < workers; ++rank) sends(rank, channel::GroupFormed{0, 0});
    sends(0, channel::Progress{.step = 40});
  }
  Lines released(int round, int restarts, int rank_offset = 3, int world_size = 6) {
    return on(RoundReleased{.round = round,
                            .restart_count = restarts,
                            .rank_offset = rank_offset,
                            .world_size = world_size,
                            .group_rank = 1,
                            .nodes = 2});
  }
  Lines sends(int rank, channel::FromWorker message) { return on(WorkerMessageReceived{rank, std::move(message)}); }
  Lines exits(int rank, int code) { return on(WorkerExited{rank, 100 + rank, {.code = code}, now_.realtime_ns}); }
  void forms_group(int generation, std::int64_t step, const std::set<int>& kept) {
    for (const int rank : kept) sends(rank, channel::RegroupReady{generation, step});
    for (int rank = 0; rank < world_; ++rank) sends(rank, channel::GroupFormed{generation, step});
  }
};

TEST_F(HoldingMember, ALocalLossHoldsTheOtherWorkers) {
  EXPECT_EQ(dies(1), (Lines{"report 4, others stay", "hold 0,2", "over"}));
  EXPECT_FALSE(state_->at_work());
  EXPECT_EQ(released(1, 1),
            (Lines{"continue", "regroup 0 as 3 of 6, node 1 of 2, in 1", "regroup 2 as 5 of 6, node 1 of 2, in 1", "start 1"}));
  EXPECT_EQ(emitted<RoundFailed>().back().decision, RoundFailed::Decision::kRegroup);
  EXPECT_TRUE(emitted<RoundStarted>().back().regroup);
  later(300);
  forms_group(1, 41, {0, 2});
  const Regrouped done = emitted<Regrouped>().back();
  EXPECT_EQ(done.kept, (std::vector<int>{3, 5}));
  EXPECT_EQ(done.replaced, std::vector<int>{4});
  EXPECT_EQ(done.step, 41);
  EXPECT_GE(done.seconds, 0.3);
  EXPECT_TRUE(timers_.empty());
}

TEST_F(HoldingMember, HeldWorkersSaveInALocalGroup) {
  dies(1);
  EXPECT_EQ(on(SaveOrdered{.held = true}),
            (Lines{"regroup 0 as 0 of 2, node 0 of 1, in 1", "regroup 2 as 1 of 2, node 0 of 1, in 1", "save 0,2"}));
  sends(0, channel::StopReady{.started = 40});
  EXPECT_EQ(sends(2, channel::StopReady{.started = 41}), Lines{"steps 41"});
  EXPECT_EQ(on(StepAgreed{41}), Lines{"send"});
  exits(0, 85);
  EXPECT_EQ(exits(2, 85), Lines{"sweep"});
  later(1);
  EXPECT_EQ(on(RoundSwept{}), Lines{"saved"});
  EXPECT_EQ(on(JobEnded{85, "saved"}), Lines{"finish 85"});
  EXPECT_EQ(emitted<RoundFailed>().back().decision, RoundFailed::Decision::kGiveUp);
}

TEST_F(HoldingMember, AMemberWithoutStateReportsItOnSave) {
  on(ordered("b no longer has workers", false));
  for (const int rank : {0, 1, 2}) exits(rank, 1);
  on(RoundSwept{});
  EXPECT_EQ(on(SaveOrdered{.held = true}), Lines{"over"});
}

TEST_F(HoldingMember, ARemoteLossHoldsAllWorkers) {
  EXPECT_EQ(on(StopOrdered{.why = "rank 0 failed", .failure = Failure{}, .hold = true}), (Lines{"hold 0,1,2", "over"}));
  // The other node was lost, so this node's workers get ranks 0 to 2 of 3.
  EXPECT_EQ(released(1, 0, 0, 3), (Lines{"continue", "regroup 0 as 0 of 3, node 1 of 2, in 1",
                                         "regroup 1 as 1 of 3, node 1 of 2, in 1", "regroup 2 as 2 of 3, node 1 of 2, in 1"}));
  forms_group(1, 40, {0, 1, 2});
  EXPECT_EQ(emitted<Regrouped>().back().kept, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(emitted<Regrouped>().back().replaced.empty());
}

TEST_F(HoldingMember, WithoutPermissionToHoldWorkersAreStopped) {
  EXPECT_EQ(on(ordered("b no longer has workers", false)), (Lines{"now 0,1,2", "signal 0,1,2 15"}));
  job(milliseconds(0));  // no regroup timeout, as with --recovery checkpoint
  EXPECT_EQ(on(ordered("b was lost", true)), (Lines{"now 0,1,2", "signal 0,1,2 15"}));
  job(milliseconds(0));
  EXPECT_EQ(dies(1), (Lines{"report 4", "now 0,2", "signal 0,2 15"}));
  job(milliseconds(60000), /*regroupable=*/false);
  EXPECT_EQ(dies(1), (Lines{"report 4, others stay", "now 0,2", "signal 0,2 15"}));
}

TEST_F(HoldingMember, AnUnverifiedStateIsNotHeld) {
  channel::WorkerError error;
  error.kind = channel::ErrorKind::kCorruptState;
  error.others_suspect = true;
  sends(1, error);
  EXPECT_EQ(exits(1, 88), (Lines{"report 4", "now 0,2", "signal 0,2 15"}));
  job();
  dies(0);  // this time another node reports that the states of its ranks differ
  EXPECT_EQ(on(HeldDismissed{"states differ"}), (Lines{"now 1,2", "signal 1,2 15"}));
}

TEST_F(HoldingMember, AWorkerThatDiesHeldIsReplacedNextRound) {
  dies(1);
  EXPECT_EQ(dies(0), Lines{});
  EXPECT_EQ(released(1, 1), (Lines{"continue", "regroup 2 as 5 of 6, node 1 of 2, in 1", "start 0", "start 1"}));
  dies(2);
  EXPECT_EQ(emitted<RunEnded>().size(), 0u);
}

TEST_F(HoldingMember, ALossDuringRegroupStartsAnotherRound) {
  dies(1);
  released(1, 1);
  EXPECT_EQ(dies(0), (Lines{"report 3, others stay", "hold 1,2", "over"}));
  EXPECT_FALSE(timers_.contains(AgentTimer::kRegroup));
  EXPECT_EQ(released(2, 2),
            (Lines{"continue", "regroup 1 as 4 of 6, node 1 of 2, in 2", "regroup 2 as 5 of 6, node 1 of 2, in 2", "start 0"}));
}

// The record of a failed round must contain the published checkpoints, and the step of the workers' state at the start of the
// round. The record must not contain steps that ranks have only reported.
TEST_F(HoldingMember, ReportsCheckpointAndStartStep) {
  const auto record_of_death = [this](int rank) {
    later(1);
    std::optional<FailedRound> record;
    for (const AgentAction& action :
         state_->on(WorkerExited{rank, 100 + rank, {.code = 0, .signal = SIGKILL}, now_.realtime_ns}, now_)) {
      if (const auto* report = std::get_if<agent_action::ReportFailure>(&action)) record = report->record;
    }
    return record;
  };
  sends(0, channel::CheckpointPublished{.step = 30});
  const auto first = record_of_death(1);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->newest_checkpoint, 30);
  EXPECT_EQ(first->resumed_from, 0);
  released(1, 1);
  forms_group(1, 41, {0, 2});
  const auto second = record_of_death(1);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->newest_checkpoint, 30);
  EXPECT_EQ(second->resumed_from, 41);
  EXPECT_TRUE(survivors_held_more(std::vector{*first}, *second));
}

TEST_F(HoldingMember, KeptStateIsReportedOnlyWithSurvivors) {
  dies(1);
  released(1, 1);
  EXPECT_NE(emitted<RoundFailed>().back().why.find("workers of the other ranks keep their state"), std::string::npos);
  job();
  dies(1);
  for (const int rank : {0, 2}) dies(rank);  // the held workers are killed while they wait
  released(1, 1);
  EXPECT_EQ(emitted<RoundFailed>().back().why, "restart 1 of the job");
}

TEST_F(HoldingMember, ALeavingNodeHoldsNothing) {
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(ordered("b is leaving", false)), (Lines{"now 0,1,2", "signal 0,1,2 15"}));
}

// The loss of another node ends the round after this node has received a signal. The workers of this node must keep their
// state, because the next round may run only to save a checkpoint.
TEST_F(HoldingMember, ASignalledNodeStillHoldsForASave) {
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(ordered("c was lost", true)), (Lines{"hold 0,1,2", "over"}));
}

TEST_F(HoldingMember, ANodeWithABrokenDeviceHoldsNothing) {
  channel::WorkerError error;
  error.message = "CUDA error: uncorrectable ECC error encountered";
  sends(1, error);
  EXPECT_EQ(exits(1, 1), (Lines{"report 4, others stay", "now 0,2", "signal 0,2 15"}));
}

TEST_F(HoldingMember, DoneWorkersContinueAfterARegroup) {
  for (int rank = 0; rank < 3; ++rank) sends(rank, channel::PhaseChange{.phase = channel::Phase::kDone, .step = 100});
  on(ordered("a was lost", true));
  released(1, 0);
  forms_group(1, 100, {0, 1, 2});
  EXPECT_EQ(on(SaveOrdered{SIGTERM}), Lines{"save 0,1,2"});
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(sends(rank, channel::StopReady{100}), Lines{});
  EXPECT_EQ(sends(2, channel::StopReady{100}), Lines{"steps 100"});
}

// The time limit of a regroup must not end the round that follows it.
TEST_F(HoldingMember, TheLastLocalWorkerIsLostDuringRegroup) {
  job(milliseconds(60000), true, /*workers=*/1);
  on(ordered("rank 0 failed", true));
  released(1, 1);
  EXPECT_EQ(dies(0), (Lines{"report 3, others stay", "sweep"}));
  EXPECT_FALSE(timers_.contains(AgentTimer::kRegroup));
  EXPECT_EQ(on(RoundSwept{}), Lines{"over"});
  EXPECT_EQ(released(2, 2), Lines{"start all"});
  sends(0, channel::Hello{});
  sends(0, channel::GroupFormed{2, 41});
  EXPECT_EQ(on(TimerFired{AgentTimer::kRegroup}), Lines{});
  EXPECT_EQ(exits(0, 0), Lines{"sweep"});
  EXPECT_EQ(emitted<RegroupFailed>().size(), 0u);
}

TEST_F(HoldingMember, AnExpiredRegroupEndsTheLocalRound) {
  dies(1);
  released(1, 1);
  EXPECT_EQ(timers_.at(AgentTimer::kRegroup), milliseconds(60000));
  sends(0, channel::RegroupReady{1, 40});
  EXPECT_EQ(on(TimerFired{AgentTimer::kRegroup}), (Lines{"now 0,1,2", "signal 0,1,2 15"}));
  EXPECT_EQ(emitted<RegroupFailed>().size(), 1u);
  exits(0, 143);
  exits(1, 143);
  EXPECT_EQ(on(TimerFired{AgentTimer::kKill}), Lines{"signal 2 9"});
  EXPECT_EQ(dies(2), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"over"});
  EXPECT_EQ(released(2, 1), Lines{"start all"});
}

TEST_F(HoldingMember, AStopDuringRegroupSavesTheKeptState) {
  dies(1);
  released(1, 1);
  EXPECT_EQ(on(SaveOrdered{SIGTERM}), Lines{});
  EXPECT_EQ(timers_.at(AgentTimer::kRegroup), milliseconds(10000));
  sends(1, channel::Hello{});
  for (const int rank : {0, 2}) sends(rank, channel::RegroupReady{1, 40});
  sends(0, channel::GroupFormed{1, 40});
  sends(1, channel::GroupFormed{1, 40});
  EXPECT_EQ(sends(2, channel::GroupFormed{1, 40}), Lines{"save 0,1,2"});
}

TEST_F(HoldingMember, AStopDuringReplacementIsDecidedByTheCoordinator) {
  dies(1);
  released(1, 1);
  on(SaveOrdered{SIGTERM});
  for (const int rank : {0, 2}) sends(rank, channel::RegroupReady{1, 40});
  later(10000);
  EXPECT_EQ(on(TimerFired{AgentTimer::kRegroup}), (Lines{"signal 1 9", "hold 0,2", "over, holding"}));
  EXPECT_EQ(on(SaveOrdered{.signal = 0, .held = true}),
            (Lines{"regroup 0 as 0 of 2, node 0 of 1, in 2", "regroup 2 as 1 of 2, node 0 of 1, in 2", "save 0,2"}));
  EXPECT_EQ(dies(1), Lines{});
  for (const int rank : {0, 2}) sends(rank, channel::StopReady{40});
  EXPECT_EQ(on(StepAgreed{40}), Lines{"send"});
  exits(0, 85);
  EXPECT_EQ(exits(2, 85), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"saved"});
  EXPECT_EQ(emitted<RegroupFailed>().size(), 0u);
}

TEST_F(HoldingMember, AStopHoldsImmediatelyWhenTheReplacementFails) {
  dies(1);
  released(1, 1);
  on(SaveOrdered{SIGTERM});
  EXPECT_EQ(dies(1), (Lines{"hold 0,2", "over, holding"}));
}

TEST_F(HoldingMember, EndOfJobStopsHeldWorkers) {
  dies(1);
  EXPECT_EQ(on(JobEnded{82, "budget spent"}), (Lines{"now 0,2", "signal 0,2 15"}));
  exits(0, 143);
  EXPECT_EQ(exits(2, 143), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 82"});
  EXPECT_EQ(emitted<RoundFailed>().back().decision, RoundFailed::Decision::kGiveUp);
}

// The job ends with exit code 82 on all nodes. A stuck worker on this node must not change this code.
TEST_F(HoldingMember, EndOfJobAlsoEndsANodeWithAStuckWorker) {
  dies(1);
  on(JobEnded{82, "budget spent"});
  exits(0, 143);
  EXPECT_EQ(on(WorkerStuck{2, 102, "in D"}), (Lines{"signal 2 9", "finish 82"}));
}

TEST_F(HoldingMember, ASecondSignalEndsAnUnansweredHold) {
  dies(1);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(SignalArrived{SIGTERM}), (Lines{"now 0,2", "signal 0,2 15"}));
  exits(0, 143);
  exits(2, 143);
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 143"});
}

TEST_F(HoldingMember, AReleaseWaitsForDismissedWorkers) {
  dies(1);
  on(HeldDismissed{"states differ"});
  EXPECT_EQ(released(1, 1), Lines{});
  exits(0, 143);
  exits(2, 143);
  EXPECT_EQ(on(RoundSwept{}), Lines{"start all"});
  job();
  dies(1);
  on(HeldDismissed{"states differ"});
  released(1, 1);
  EXPECT_EQ(on(ordered("a was lost", true)), Lines{"over"});  // this order is for a round that never started on this node
  exits(0, 143);
  exits(2, 143);
  EXPECT_EQ(on(RoundSwept{}), Lines{});
  EXPECT_EQ(released(2, 1), Lines{"start all"});
}

// For any order of events, the end of each started round must be reported exactly once, and the end of the job must end the
// agent.
TEST_F(HoldingMember, AnyOrderOfEventsEnds) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 chance(seed);
    const auto below = [&](int n) { return static_cast<int>(chance() % static_cast<unsigned>(n)); };
    job();
    std::set<int> alive{0, 1, 2};
    // true until the coordinator has received the report that this node's round is over
    bool sweeping = false, finished = false, running = true;
    int round = 0, owed = 1;  // `owed`: number of started rounds whose end the agent has not reported
    const auto feed = [&](const AgentEvent& event) {
      for (const std::string& line : on(event)) {
        if (line == "sweep") sweeping = true;
        if (line == "over") --owed;
        if (line.starts_with("finish")) finished = true;
        if (line.starts_with("start all")) alive = {0, 1, 2};
        if (line.starts_with("start ") && line.size() == 7) alive.insert(line.back() - '0');
      }
      ASSERT_GE(owed, 0) << "seed " << seed;
      if (owed == 0) running = false;
    };
    const auto settle = [&] {  // lets all workers exit and completes the sweep of leftover processes
      for (int turn = 0; turn < 50 && (sweeping || !alive.empty()); ++turn) {
        if (!alive.empty()) {
          const int rank = *alive.begin();
          alive.erase(rank);
          feed(WorkerExited{rank, 100 + rank, {.code = 143}, now_.realtime_ns});
        } else if (std::exchange(sweeping, false)) {
          feed(RoundSwept{});
        }
      }
    };
    for (int turn = 0; turn < 40 && !finished; ++turn) {
      const int choice = below(8);
      if (choice == 0 && !alive.empty()) {
        const int rank = *std::next(alive.begin(), below(static_cast<int>(alive.size())));
        alive.erase(rank);
        feed(WorkerExited{rank, 100 + rank, {.code = 0, .signal = SIGKILL}, now_.realtime_ns});
      } else if (choice == 1 && running) {
        feed(ordered("why", below(3) > 0));
      } else if (choice == 2 && !running && below(2) == 0) {
        feed(HeldDismissed{"why"});
      } else if (choice == 3 && !running) {
        running = true;
        ++owed;
        feed(RoundReleased{.round = ++round, .rank_offset = 3, .world_size = 6, .group_rank = 1, .nodes = 2});
      } else if (choice == 4 && !alive.empty()) {
        feed(WorkerMessageReceived{*alive.begin(), channel::RegroupReady{round, 40}});
        feed(WorkerMessageReceived{*alive.begin(), channel::GroupFormed{round, 40}});
      } else if (choice == 5 && timers_.contains(AgentTimer::kRegroup)) {
        timers_.erase(AgentTimer::kRegroup);
        feed(TimerFired{AgentTimer::kRegroup});
      } else if (choice == 6 && sweeping && alive.empty()) {
        sweeping = false;
        feed(RoundSwept{});
      } else if (choice == 7 && below(10) == 0) {
        feed(SignalArrived{SIGTERM});
      }
    }
    if (running) feed(ordered("the end", below(2) == 0));
    if (owed > 0) settle();
    if (finished) continue;  // a second signal has ended the agent
    ASSERT_EQ(owed, 0) << "seed " << seed;
    feed(JobEnded{0, "done"});
    settle();
    ASSERT_TRUE(finished) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ddprun
