// Workers of one node of a multi-node job that wait with their state between two rounds (agent_state.cpp), for every way in
// which the wait can end.
#include <gtest/gtest.h>

#include <csignal>
#include <random>
#include <set>

#include "launcher/decide/agent_state.hpp"
#include "tests/launcher/decide/driven_agent.hpp"

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
  if (const auto* a = std::get_if<agent_action::Tell>(&action)) {
    if (std::holds_alternative<channel::Hold>(a->message)) return "hold " + listed(a->ranks);
    if (const auto* regroup = std::get_if<channel::Regroup>(&a->message)) {
      return "regroup " + listed(a->ranks) + " as " + std::to_string(regroup->rank) + " of " +
             std::to_string(regroup->world_size) + ", node " + std::to_string(regroup->group_rank) + " of " +
             std::to_string(regroup->group_world_size) + ", in " + std::to_string(regroup->generation);
    }
    const auto* stop = std::get_if<channel::Stop>(&a->message);
    if (stop == nullptr) return "tell";
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

// The second of two nodes with three workers each: ranks 3, 4 and 5 of 6.
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
    for (int rank = 0; rank < workers; ++rank) says(rank, channel::Hello{});
    if (regroupable) says(0, channel::Regroupable{});
    for (int rank = 0; rank < workers; ++rank) says(rank, channel::GroupFormed{0, 0});
    says(0, channel::Progress{.step = 40});
  }
  Lines released(int round, int restarts, int rank_offset = 3, int world_size = 6) {
    return on(RoundReleased{.round = round,
                            .restart_count = restarts,
                            .rank_offset = rank_offset,
                            .world_size = world_size,
                            .group_rank = 1,
                            .nodes = 2});
  }
  Lines says(int rank, channel::FromWorker message) { return on(WorkerSaid{rank, std::move(message)}); }
  Lines exits(int rank, int code) { return on(WorkerExited{rank, 100 + rank, {.code = code}, now_.realtime_ns}); }
  void comes_together(int generation, std::int64_t step, const std::set<int>& kept) {
    for (const int rank : kept) says(rank, channel::RegroupReady{generation, step});
    for (int rank = 0; rank < world_; ++rank) says(rank, channel::GroupFormed{generation, step});
  }
};

TEST_F(HoldingMember, ALossHereLeavesTheOthersWaitingForTheNextRound) {
  EXPECT_EQ(dies(1), (Lines{"report 4, others stay", "hold 0,2", "over"}));
  EXPECT_FALSE(state_->at_work());
  EXPECT_EQ(released(1, 1),
            (Lines{"continue", "regroup 0 as 3 of 6, node 1 of 2, in 1", "regroup 2 as 5 of 6, node 1 of 2, in 1", "start 1"}));
  EXPECT_EQ(emitted<RoundFailed>().back().decision, RoundFailed::Decision::kRegroup);
  EXPECT_TRUE(emitted<RoundStarted>().back().regroup);
  later(300);
  comes_together(1, 41, {0, 2});
  const Regrouped done = emitted<Regrouped>().back();
  EXPECT_EQ(done.kept, (std::vector<int>{3, 5}));
  EXPECT_EQ(done.replaced, std::vector<int>{4});
  EXPECT_EQ(done.step, 41);
  EXPECT_GE(done.seconds, 0.3);
  EXPECT_TRUE(timers_.empty());
}

TEST_F(HoldingMember, WithoutANextRoundTheySaveInAGroupOfTheirOwn) {
  dies(1);
  EXPECT_EQ(on(SaveOrdered{.held = true}),
            (Lines{"regroup 0 as 0 of 2, node 0 of 1, in 1", "regroup 2 as 1 of 2, node 0 of 1, in 1", "save 0,2"}));
  says(0, channel::StopReady{.started = 40});
  EXPECT_EQ(says(2, channel::StopReady{.started = 41}), Lines{"steps 41"});
  EXPECT_EQ(on(StepAgreed{41}), Lines{"tell"});
  exits(0, 85);
  EXPECT_EQ(exits(2, 85), Lines{"sweep"});
  later(1);
  EXPECT_EQ(on(RoundSwept{}), Lines{"saved"});
  EXPECT_EQ(on(JobEnded{85, "saved"}), Lines{"finish 85"});
  EXPECT_EQ(emitted<RoundFailed>().back().decision, RoundFailed::Decision::kGiveUp);
}

TEST_F(HoldingMember, WhoHoldsNothingSaysSoWhenItIsToSave) {
  on(ordered("b has no workers any more", false));
  for (const int rank : {0, 1, 2}) exits(rank, 1);
  on(RoundSwept{});
  EXPECT_EQ(on(SaveOrdered{.held = true}), Lines{"over"});
}

TEST_F(HoldingMember, ALossElsewhereKeepsAllOfThem) {
  EXPECT_EQ(on(StopOrdered{.why = "rank 0 failed", .failure = Failure{}, .hold = true}), (Lines{"hold 0,1,2", "over"}));
  // A node was lost, and the remaining nodes have other ranks.
  EXPECT_EQ(released(1, 0, 0, 3), (Lines{"continue", "regroup 0 as 0 of 3, node 1 of 2, in 1",
                                         "regroup 1 as 1 of 3, node 1 of 2, in 1", "regroup 2 as 2 of 3, node 1 of 2, in 1"}));
  comes_together(1, 40, {0, 1, 2});
  EXPECT_EQ(emitted<Regrouped>().back().kept, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(emitted<Regrouped>().back().replaced.empty());
}

TEST_F(HoldingMember, WithoutLeaveToHoldTheyAreStopped) {
  EXPECT_EQ(on(ordered("b has no workers any more", false)), (Lines{"now 0,1,2", "signal 0,1,2 15"}));
  job(milliseconds(0));  // --recovery checkpoint
  EXPECT_EQ(on(ordered("b was lost", true)), (Lines{"now 0,1,2", "signal 0,1,2 15"}));
  job(milliseconds(0));
  EXPECT_EQ(dies(1), (Lines{"report 4", "now 0,2", "signal 0,2 15"}));
  job(milliseconds(60000), /*regroupable=*/false);
  EXPECT_EQ(dies(1), (Lines{"report 4, others stay", "now 0,2", "signal 0,2 15"}));
}

TEST_F(HoldingMember, AStateThatNobodyCanVouchForIsNotHeldAnywhere) {
  channel::WorkerError error;
  error.kind = channel::ErrorKind::kCorruptState;
  error.others_suspect = true;
  says(1, error);
  EXPECT_EQ(exits(1, 88), (Lines{"report 4", "now 0,2", "signal 0,2 15"}));
  job();
  dies(0);  // and the same hold, if another node reports the loss
  EXPECT_EQ(on(HeldDismissed{"states differ"}), (Lines{"now 1,2", "signal 1,2 15"}));
}

TEST_F(HoldingMember, WhoDiesWhileItWaitsIsStartedAnewWithTheRound) {
  dies(1);
  EXPECT_EQ(dies(0), Lines{});
  EXPECT_EQ(released(1, 1), (Lines{"continue", "regroup 2 as 5 of 6, node 1 of 2, in 1", "start 0", "start 1"}));
  dies(2);
  EXPECT_EQ(emitted<RunEnded>().size(), 0u);
}

TEST_F(HoldingMember, ALossWhileTheyComeTogetherIsAnotherRound) {
  dies(1);
  released(1, 1);
  EXPECT_EQ(dies(0), (Lines{"report 3, others stay", "hold 1,2", "over"}));
  EXPECT_FALSE(timers_.contains(AgentTimer::kRegroup));
  EXPECT_EQ(released(2, 2),
            (Lines{"continue", "regroup 1 as 4 of 6, node 1 of 2, in 2", "regroup 2 as 5 of 6, node 1 of 2, in 2", "start 0"}));
}

// The policy uses published steps, and the step that the group held when the round began, but not the steps that ranks report
// in between.
TEST_F(HoldingMember, ReportsWhatWasPublishedAndWhatTheRoundBeganWith) {
  const auto record_of_death = [this](int rank) {
    later(1);
    std::optional<FailedRound> record;
    for (const AgentAction& action :
         state_->on(WorkerExited{rank, 100 + rank, {.code = 0, .signal = SIGKILL}, now_.realtime_ns}, now_)) {
      if (const auto* report = std::get_if<agent_action::ReportFailure>(&action)) record = report->record;
    }
    return record;
  };
  says(0, channel::CheckpointPublished{.step = 30});
  const auto first = record_of_death(1);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->newest_checkpoint, 30);
  EXPECT_EQ(first->resumed_from, 0);
  released(1, 1);
  comes_together(1, 41, {0, 2});
  const auto second = record_of_death(1);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->newest_checkpoint, 30);
  EXPECT_EQ(second->resumed_from, 41);
  EXPECT_TRUE(survivors_held_more(std::vector{*first}, *second));
}

TEST_F(HoldingMember, ThatOthersKeepTheirStateIsOnlySaidWhereOneOfThemIsLeft) {
  dies(1);
  released(1, 1);
  EXPECT_NE(emitted<RoundFailed>().back().why.find("the others keep their state"), std::string::npos);
  job();
  dies(1);
  for (const int rank : {0, 2}) dies(rank);  // while they wait
  released(1, 1);
  EXPECT_EQ(emitted<RoundFailed>().back().why, "restart 1 of the job");
}

TEST_F(HoldingMember, WhoLeavesWithASignalKeepsNothing) {
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(ordered("b is leaving", false)), (Lines{"now 0,1,2", "signal 0,1,2 15"}));
}

// Its round ended for another reason: the next round may begin with a save of the held state.
TEST_F(HoldingMember, ASignalKeepsNoStateFromBeingSaved) {
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(ordered("c was lost", true)), (Lines{"hold 0,1,2", "over"}));
}

TEST_F(HoldingMember, ANodeWhoseDeviceIsBrokenLeavesAndKeepsNothing) {
  channel::WorkerError error;
  error.message = "CUDA error: uncorrectable ECC error encountered";
  says(1, error);
  EXPECT_EQ(exits(1, 1), (Lines{"report 4, others stay", "now 0,2", "signal 0,2 15"}));
}

TEST_F(HoldingMember, WhoWasDoneIsAtWorkAgainWithTheOthers) {
  for (int rank = 0; rank < 3; ++rank) says(rank, channel::PhaseChange{.phase = channel::Phase::kDone, .step = 100});
  on(ordered("a was lost", true));
  released(1, 0);
  comes_together(1, 100, {0, 1, 2});
  EXPECT_EQ(on(SaveOrdered{SIGTERM}), Lines{"save 0,1,2"});
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(says(rank, channel::StopReady{100}), Lines{});
  EXPECT_EQ(says(2, channel::StopReady{100}), Lines{"steps 100"});
}

// A time limit of the previous group must not end the next round.
TEST_F(HoldingMember, TheLastOneHereIsLostWhileTheyComeTogether) {
  job(milliseconds(60000), true, /*workers=*/1);
  on(ordered("rank 0 failed", true));
  released(1, 1);
  EXPECT_EQ(dies(0), (Lines{"report 3, others stay", "sweep"}));
  EXPECT_FALSE(timers_.contains(AgentTimer::kRegroup));
  EXPECT_EQ(on(RoundSwept{}), Lines{"over"});
  EXPECT_EQ(released(2, 2), Lines{"start all"});
  says(0, channel::Hello{});
  says(0, channel::GroupFormed{2, 41});
  EXPECT_EQ(on(TimerFired{AgentTimer::kRegroup}), Lines{});
  EXPECT_EQ(exits(0, 0), Lines{"sweep"});
  EXPECT_EQ(emitted<RegroupFailed>().size(), 0u);
}

TEST_F(HoldingMember, WhoDoesNotFollowInTimeEndsTheRoundHere) {
  dies(1);
  released(1, 1);
  EXPECT_EQ(timers_.at(AgentTimer::kRegroup), milliseconds(60000));
  says(0, channel::RegroupReady{1, 40});
  EXPECT_EQ(on(TimerFired{AgentTimer::kRegroup}), (Lines{"now 0,1,2", "signal 0,1,2 15"}));
  EXPECT_EQ(emitted<RegroupFailed>().size(), 1u);
  exits(0, 143);
  exits(1, 143);
  EXPECT_EQ(on(TimerFired{AgentTimer::kKill}), Lines{"signal 2 9"});
  EXPECT_EQ(dies(2), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"over"});
  EXPECT_EQ(released(2, 1), Lines{"start all"});
}

TEST_F(HoldingMember, AnEndWhileTheyComeTogetherSavesWhatWasKept) {
  dies(1);
  released(1, 1);
  EXPECT_EQ(on(SaveOrdered{SIGTERM}), Lines{});
  EXPECT_EQ(timers_.at(AgentTimer::kRegroup), milliseconds(10000));
  says(1, channel::Hello{});
  for (const int rank : {0, 2}) says(rank, channel::RegroupReady{1, 40});
  says(0, channel::GroupFormed{1, 40});
  says(1, channel::GroupFormed{1, 40});
  EXPECT_EQ(says(2, channel::GroupFormed{1, 40}), Lines{"save 0,1,2"});
}

TEST_F(HoldingMember, AStopWhileAReplacementLoadsLetsTheCoordinatorChooseWhoSaves) {
  dies(1);
  released(1, 1);
  on(SaveOrdered{SIGTERM});
  for (const int rank : {0, 2}) says(rank, channel::RegroupReady{1, 40});
  later(10000);
  EXPECT_EQ(on(TimerFired{AgentTimer::kRegroup}), (Lines{"signal 1 9", "hold 0,2", "over, holding"}));
  EXPECT_EQ(on(SaveOrdered{.signal = 0, .held = true}),
            (Lines{"regroup 0 as 0 of 2, node 0 of 1, in 2", "regroup 2 as 1 of 2, node 0 of 1, in 2", "save 0,2"}));
  EXPECT_EQ(dies(1), Lines{});
  for (const int rank : {0, 2}) says(rank, channel::StopReady{40});
  EXPECT_EQ(on(StepAgreed{40}), Lines{"tell"});
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

TEST_F(HoldingMember, TheJobsEndStopsThoseWhoWait) {
  dies(1);
  EXPECT_EQ(on(JobEnded{82, "budget spent"}), (Lines{"now 0,2", "signal 0,2 15"}));
  exits(0, 143);
  EXPECT_EQ(exits(2, 143), Lines{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 82"});
  EXPECT_EQ(emitted<RoundFailed>().back().decision, RoundFailed::Decision::kGiveUp);
}

// The job has ended with 82 for all nodes, whatever the kernel does with a worker of this one.
TEST_F(HoldingMember, TheJobsEndIsAlsoThatOfANodeWithAStuckWorker) {
  dies(1);
  on(JobEnded{82, "budget spent"});
  exits(0, 143);
  EXPECT_EQ(on(WorkerStuck{2, 102, "in D"}), (Lines{"signal 2 9", "finish 82"}));
}

TEST_F(HoldingMember, ASecondSignalEndsAWaitThatNobodyAnswers) {
  dies(1);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(SignalArrived{SIGTERM}), (Lines{"now 0,2", "signal 0,2 15"}));
  exits(0, 143);
  exits(2, 143);
  EXPECT_EQ(on(RoundSwept{}), Lines{"finish 143"});
}

TEST_F(HoldingMember, AReleaseWaitsForThoseThatAreNotWantedAnyMore) {
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
  EXPECT_EQ(on(ordered("a was lost", true)), Lines{"over"});  // about a round that never began here
  exits(0, 143);
  exits(2, 143);
  EXPECT_EQ(on(RoundSwept{}), Lines{});
  EXPECT_EQ(released(2, 1), Lines{"start all"});
}

// Whatever happens in whatever order, each round that begins here is reported as over once, and the job's end ends the agent.
TEST_F(HoldingMember, AnyOrderOfEventsEnds) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 chance(seed);
    const auto below = [&](int n) { return static_cast<int>(chance() % static_cast<unsigned>(n)); };
    job();
    std::set<int> alive{0, 1, 2};
    bool sweeping = false, finished = false, running = true;  // running, as far as the coordinator knows
    int round = 0, owed = 1;                                  // rounds that are not over
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
    const auto settle = [&] {  // everything in progress comes to its end
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
        feed(WorkerSaid{*alive.begin(), channel::RegroupReady{round, 40}});
        feed(WorkerSaid{*alive.begin(), channel::GroupFormed{round, 40}});
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
    if (finished) continue;  // because a signal came twice
    ASSERT_EQ(owed, 0) << "seed " << seed;
    feed(JobEnded{0, "done"});
    settle();
    ASSERT_TRUE(finished) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ddprun
