// Tests the agent's state machine. Each test feeds events and compares the resulting actions, which are converted to short
// texts.
#include "launcher/agent_state/agent_state.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <random>
#include <sstream>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

using namespace agent_event;  // NOLINT: the test reads as a script
using channel::ErrorKind;
using channel::Phase;
using std::chrono::milliseconds;
using Lines = std::vector<std::string>;

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

std::string text_of(const channel::FromAgent& message) {
  if (const auto* stop = std::get_if<channel::Stop>(&message)) return stop->mode == channel::Stop::Mode::kSave ? "save" : "now";
  if (const auto* at = std::get_if<channel::StopAt>(&message)) return "stop-at " + std::to_string(at->step);
  if (std::holds_alternative<channel::IgnoreSignal>(message)) return "carry";
  return "store";
}

struct Render {
  std::string operator()(const agent_action::StartRound& a) const {
    return "start " + std::to_string(a.round) + " restarts " + std::to_string(a.restart_count);
  }
  std::string operator()(const agent_action::ContinueRound& a) const {
    return "continue " + std::to_string(a.round) + " restarts " + std::to_string(a.restart_count);
  }
  std::string operator()(const agent_action::StartWorker& a) const { return "start worker " + std::to_string(a.rank); }
  std::string operator()(const agent_action::TakeOver& a) const {
    return "standby " + std::to_string(a.standby) + " takes over " + std::to_string(a.rank);
  }
  std::string operator()(const agent_action::StartStandby& a) const { return "start standby " + std::to_string(a.number); }
  std::string operator()(const agent_action::DismissStandbys&) const { return "dismiss standbys"; }
  std::string operator()(const agent_action::SendMessage& a) const {
    return "send " + joined(a.ranks) + " " + text_of(a.message);
  }
  std::string operator()(const agent_action::SendSignal& a) const {
    return "signal " + joined(a.ranks) + " " + std::to_string(a.signal);
  }
  std::string operator()(const agent_action::Sweep&) const { return "sweep"; }
  std::string operator()(const agent_action::SetTimer& a) const {
    const char* names[] = {"save", "kill", "pause", "regroup", "replace"};
    return std::string("timer ") + names[static_cast<int>(a.timer)] + " " + std::to_string(a.after.count());
  }
  std::string operator()(const agent_action::CancelTimer&) const { return ""; }
  std::string operator()(const agent_action::ReportFailure& a) const {
    return "report rank " + std::to_string(a.failure.rank) + " " + name_of(a.failure.cause);
  }
  std::string operator()(const agent_action::ReportRoundOver& a) const {
    const char* names[] = {"done", "saved", "ended"};
    return std::string("over ") + names[static_cast<int>(a.how)];
  }
  std::string operator()(const agent_action::ReportSignal& a) const {
    return (a.saves ? "requests to save and stop " : "requests to stop ") + std::to_string(a.signal);
  }
  std::string operator()(const agent_action::ReportSteps& a) const { return "started " + std::to_string(a.started); }
  std::string operator()(const agent_action::Finish& a) const {
    return "finish " + std::to_string(a.exit_code) + (a.abandon ? " abandoning" : "");
  }
  std::string operator()(const agent_action::Emit&) const { return ""; }
};

class AgentStateTest : public testing::Test {
 protected:
  void job(int world_size, bool channel, int max_restarts = 0, milliseconds timeout = milliseconds(20000)) {
    state_.emplace(AgentSettings{.world_size = world_size,
                                 .workers_have_channel = channel,
                                 .first_round = 0,
                                 .shutdown_timeout = timeout,
                                 .restarts = {.max_restarts = max_restarts, .refill_by_progress = channel}});
    begin_ = on(Begin{});
    if (channel) {
      for (int rank = 0; rank < world_size; ++rank) on(WorkerMessageReceived{rank, channel::Hello{}});
    }
  }
  // Creates the state machine for the second node of a two-node job. The workers of this node get ranks 2 and 3 of 4 in each
  // round.
  void member(bool channel = false) {
    state_.emplace(AgentSettings{.world_size = 2,
                                 .mode = AgentSettings::Mode::kMember,
                                 .workers_have_channel = channel,
                                 .first_round = 0,
                                 .shutdown_timeout = milliseconds(20000),
                                 .restarts = {}});
    begin_ = on(Begin{});
  }
  Lines released(int round, int restarts = 0) {
    return on(RoundReleased{
        .round = round, .restart_count = restarts, .rank_offset = 2, .world_size = 4, .group_rank = 1, .nodes = 2});
  }
  // Returns the requested actions as texts. Emitted events are appended to events_.
  Lines on(const AgentEvent& event) {
    now_.steady += milliseconds(10);
    now_.realtime_ns += 10'000'000;
    Lines lines;
    for (const AgentAction& action : state_->on(event, now_)) {
      if (const auto* emit = std::get_if<agent_action::Emit>(&action)) events_.push_back(emit->event);
      if (const auto* sweep = std::get_if<agent_action::Sweep>(&action)) sweep_ = *sweep;
      const std::string line = std::visit(Render{}, action);
      if (!line.empty()) lines.push_back(line);
    }
    return lines;
  }
  Lines exits(int rank, int code) { return on(WorkerExited{rank, 100 + rank, {.code = code}, now_.realtime_ns + 1}); }
  Lines dies(int rank, int signal) {
    return on(WorkerExited{rank, 100 + rank, {.code = 0, .signal = signal}, now_.realtime_ns + 1});
  }
  Lines sends(int rank, channel::FromWorker message) { return on(WorkerMessageReceived{rank, std::move(message)}); }
  Lines swept() { return on(RoundSwept{}); }
  const RoundFailed& last_failure() const {
    for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
      if (const auto* failed = std::get_if<RoundFailed>(&*event)) return *failed;
    }
    throw std::logic_error("no RoundFailed was emitted");
  }
  std::string why_it_ended() const {
    const auto* end = events_.empty() ? nullptr : std::get_if<RunEnded>(&events_.back());
    return end == nullptr ? "it has not ended" : end->why;
  }
  std::vector<CutOff> cuts() const {
    std::vector<CutOff> found;
    for (const RunEvent& event : events_) {
      if (const auto* cut = std::get_if<CutOff>(&event)) found.push_back(*cut);
    }
    return found;
  }
  static channel::WorkerError error(ErrorKind kind, std::int64_t step = 0) {
    channel::WorkerError made;
    made.kind = kind;
    made.message = "because";
    made.step = step;
    return made;
  }

  using How = agent_action::Sweep::How;
  std::optional<AgentState> state_;
  agent_action::Sweep sweep_;  // the Sweep action (a request to end leftover processes) that was returned last
  Instant now_{std::chrono::steady_clock::time_point{}, 1'000'000'000};
  std::vector<RunEvent> events_;
  Lines begin_;
};

TEST_F(AgentStateTest, AJobSucceeds) {
  job(2, false);
  EXPECT_EQ(begin_, Lines{"start 0 restarts 0"});
  EXPECT_EQ(exits(1, 0), Lines{});  // an exit with 0 is not a failure while other ranks run
  EXPECT_EQ(exits(0, 0), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 0"});
  EXPECT_EQ(swept(), Lines{});
}

TEST_F(AgentStateTest, AnExpiredTimerKillsItsWorker) {
  job(2, false, 1);
  EXPECT_EQ(on(TimerExpired{1, SIGKILL, "timer expired: 'step'"}), Lines{"signal 1 9"});
  EXPECT_EQ(dies(1, SIGKILL), (Lines{"signal 0 15", "timer kill 20000"}));
  EXPECT_EQ(dies(0, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"start 1 restarts 1"});
  EXPECT_EQ(last_failure().first.rank, 1);
  EXPECT_EQ(last_failure().first.cause, Cause::kTimerExpired);
  EXPECT_EQ(last_failure().first.message, "timer expired: 'step'");
}

TEST_F(AgentStateTest, AHangingWorkerIsKilledAsFirstCause) {
  job(3, true, 3);
  exits(2, 0);
  EXPECT_EQ(on(HangFound{{{.rank = 0, .blame = {}, .evidence = {"waits"}},
                          {.rank = 1, .blame = "hangs: it is stopped", .evidence = {"state T"}}}}),
            Lines{"signal 1 9"});
  EXPECT_EQ(dies(1, SIGKILL), (Lines{"send 0 now", "signal 0 15", "timer kill 20000"}));
  sends(0, error(ErrorKind::kLostPeer, 17));
  exits(0, 1);
  EXPECT_EQ(swept(), Lines{"start 1 restarts 1"});
  EXPECT_EQ(last_failure().first.cause, Cause::kHang);
  EXPECT_EQ(last_failure().first.rank, 1);
  EXPECT_EQ(last_failure().first.message, "hangs: it is stopped");
  EXPECT_EQ(last_failure().first.evidence,
            (Lines{"state T", "rank 2 exited with code 0 before the hang: the other ranks may be waiting for it"}));
  EXPECT_EQ(last_failure().consequences.at(0).evidence, Lines{"waits"});
}

TEST_F(AgentStateTest, StepsOfOneRankImplyStepsOfTheOthers) {
  job(2, true, 3);
  sends(0, channel::Progress{.step = 40});
  // The agent does not receive a message for every step, because each message costs it CPU time.
  sends(1, channel::Progress{.step = 12});
  dies(1, SIGKILL);
  dies(0, SIGTERM);
  swept();
  EXPECT_EQ(last_failure().first.rank, 1);
  EXPECT_EQ(last_failure().first.step, 39);
  EXPECT_EQ(last_failure().consequences.at(0).step, 40);
}

TEST_F(AgentStateTest, AHangWithoutRestartsHasItsOwnExitCode) {
  job(2, false);
  on(HangFound{{{.rank = 0, .blame = "hangs", .evidence = {}}, {.rank = 1, .blame = "hangs", .evidence = {}}}});
  dies(1, SIGKILL);
  dies(0, SIGKILL);
  EXPECT_EQ(swept(), Lines{"finish 82"});
  EXPECT_EQ(last_failure().consequences.at(0).cause, Cause::kHang);
}

TEST_F(AgentStateTest, AHangDuringAStopIsIgnored) {
  job(2, true);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(HangFound{{{.rank = 0, .blame = "hangs", .evidence = {}}}}), Lines{});
}

TEST_F(AgentStateTest, ExpiredTimersOfEndedOrStoppingWorkersAreIgnored) {
  job(2, false);
  exits(0, 0);
  EXPECT_EQ(on(TimerExpired{0, SIGKILL, "late"}), Lines{});
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(TimerExpired{1, SIGKILL, "late"}), Lines{});
}

TEST_F(AgentStateTest, AStuckWorkerEndsTheJobWithoutBeingAwaited) {
  job(3, false, 5);
  EXPECT_EQ(on(WorkerStuck{1, 101, "in D"}), (Lines{"signal 1 9", "signal 0,2 15", "timer kill 20000"}));
  EXPECT_EQ(dies(0, SIGTERM), Lines{});
  EXPECT_EQ(dies(2, SIGTERM), Lines{"finish 89 abandoning"});
  EXPECT_EQ(last_failure().first.rank, 1);
  EXPECT_EQ(last_failure().first.cause, Cause::kStuck);
  EXPECT_EQ(last_failure().first.message, "in D");
  EXPECT_EQ(last_failure().decision, RoundFailed::Decision::kGiveUp);
}

TEST_F(AgentStateTest, AStuckWorkerThatDiesIsAnOrdinaryFailure) {
  job(2, false, 5);
  on(WorkerStuck{1, 101, "in D"});
  EXPECT_EQ(dies(1, SIGKILL), Lines{});
  EXPECT_EQ(dies(0, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"start 1 restarts 1"});
}

TEST_F(AgentStateTest, AStuckWorkerKeepsTheEarlierExitCode) {
  job(2, false, 5);
  exits(0, 7);
  EXPECT_EQ(on(WorkerStuck{1, 101, "in D"}), (Lines{"signal 1 9", "finish 7 abandoning"}));
  EXPECT_EQ(last_failure().first.rank, 0);
}

TEST_F(AgentStateTest, AnAgentFailureSavesAndSetsTheExitCode) {
  job(2, true, 5);
  sends(0, channel::Progress{.step = 40});
  EXPECT_EQ(on(AgentFailed{89, "internal error", {0, 1}}), (Lines{"send 0,1 save", "timer save 15000"}));
  EXPECT_EQ(on(AgentFailed{2, "and another one", {0, 1}}), Lines{});
  sends(0, channel::StopReady{41});
  EXPECT_EQ(sends(1, channel::StopReady{42}), Lines{"send 0,1 stop-at 42"});
  sends(0, channel::CheckpointPublished{.step = 42});
  exits(0, 85);
  EXPECT_EQ(exits(1, 85), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 89"});
  EXPECT_EQ(why_it_ended(), "internal error; the workers stopped after saving: run the job again to continue");
  EXPECT_EQ(on(AgentFailed{89, "later", {}}), Lines{});
}

TEST_F(AgentStateTest, AnAgentFailureStopsAScript) {
  job(2, false, 5);
  EXPECT_EQ(on(AgentFailed{89, "internal error", {0, 1}}), (Lines{"signal 0,1 15", "timer kill 20000"}));
  dies(0, SIGTERM);
  EXPECT_EQ(dies(1, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 89"});
  EXPECT_EQ(why_it_ended(), "internal error");
}

// The workers could not be started, so no worker is running. So the agent must not wait for a worker.
TEST_F(AgentStateTest, AnAgentFailureAwaitsOnlyRunningWorkers) {
  job(2, true, 5);
  EXPECT_EQ(on(AgentFailed{2, "the port is taken", {}}), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 2"});
}

TEST_F(AgentStateTest, AnAgentFailureBetweenRoundsEndsTheJobImmediately) {
  job(1, false, 5);
  for (int round = 0; round < 2; ++round) {
    exits(0, 1);
    swept();
  }
  EXPECT_EQ(on(AgentFailed{89, "internal error", {}}), Lines{"finish 89"});
}

TEST_F(AgentStateTest, AnAgentFailureDuringAStopChangesTheExitCode) {
  job(2, true, 5);
  exits(0, 7);
  EXPECT_EQ(on(AgentFailed{89, "internal error", {1}}), Lines{});
  EXPECT_EQ(dies(1, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(on(AgentFailed{89, "later", {}}), Lines{});
  EXPECT_EQ(swept(), Lines{"finish 89"});
}

// The agent may stop this node's workers without a save, because the workers of other nodes have the same state.
TEST_F(AgentStateTest, AnAgentFailureStopsAMembersWorkers) {
  member(true);
  released(1);
  for (const int rank : {0, 1}) sends(rank, channel::Hello{});
  EXPECT_EQ(on(AgentFailed{89, "internal error", {0, 1}}), (Lines{"send 0,1 now", "signal 0,1 15", "timer kill 20000"}));
  dies(0, SIGTERM);
  dies(1, SIGTERM);
  EXPECT_EQ(on(JobEnded{0, "done"}), Lines{});
  EXPECT_EQ(swept(), Lines{"finish 89"});
}

TEST_F(AgentStateTest, ImpossibleEventsThrowAndWorkersCanStillSave) {
  job(2, true, 5);
  EXPECT_THROW(exits(2, 0), InternalError);  // the job has only ranks 0 and 1
  EXPECT_THROW(on(Begin{}), InternalError);
  EXPECT_EQ(on(AgentFailed{89, "internal error", {0, 1}}), (Lines{"send 0,1 save", "timer save 15000"}));
}

TEST_F(AgentStateTest, AFailureStopsTheOthersAndSetsTheExitCode) {
  job(3, false);
  EXPECT_EQ(exits(1, 7), (Lines{"signal 0,2 15", "timer kill 20000"}));
  EXPECT_EQ(dies(0, SIGTERM), Lines{});
  EXPECT_EQ(dies(2, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 7"});
  EXPECT_EQ(last_failure().first.rank, 1);
  ASSERT_EQ(last_failure().consequences.size(), 2u);
  EXPECT_EQ(last_failure().consequences[0].cause, Cause::kStopped);
}

TEST_F(AgentStateTest, AWorkerThatIgnoresTheStopIsKilled) {
  job(2, false);
  exits(0, 1);
  EXPECT_EQ(on(TimerFired{AgentTimer::kKill}), Lines{"signal 1 9"});
  EXPECT_EQ(dies(1, SIGKILL), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 1"});
  EXPECT_EQ(last_failure().first.rank, 0);
}

TEST_F(AgentStateTest, WithoutStopTimeWorkersAreKilledImmediately) {
  job(2, false, 0, milliseconds(0));
  EXPECT_EQ(exits(0, 1), Lines{"signal 1 9"});
}

TEST_F(AgentStateTest, RestartsWithinTheBudget) {
  job(1, false, 1);
  exits(0, 1);
  EXPECT_EQ(swept(), Lines{"start 1 restarts 1"});
  exits(0, 3);
  EXPECT_EQ(swept(), Lines{"finish 3"});
}

TEST_F(AgentStateTest, ACrashLoopPausesAndASignalEndsThePause) {
  job(1, false, 5);
  exits(0, 1);
  swept();
  exits(0, 1);
  EXPECT_EQ(swept(), Lines{"timer pause 500"});
  EXPECT_EQ(on(TimerFired{AgentTimer::kPause}), Lines{"start 2 restarts 2"});
  exits(0, 1);
  EXPECT_EQ(swept(), Lines{"timer pause 1000"});
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{"finish 130"});
}

TEST_F(AgentStateTest, AProgramThatCannotStartEndsTheJob) {
  job(2, false, 3);
  on(SpawnFailed{0, ENOENT, "cannot start 'x': No such file or directory", now_.realtime_ns});
  on(SpawnFailed{1, ENOENT, "cannot start 'x': No such file or directory", now_.realtime_ns});
  EXPECT_EQ(swept(), Lines{"finish 2"});
  EXPECT_EQ(last_failure().first.cause, Cause::kSpawn);
}

TEST_F(AgentStateTest, ChannelWorkersGetAMessageBeforeTheSignal) {
  job(2, true);
  EXPECT_EQ(dies(1, SIGSEGV), (Lines{"send 0 now", "signal 0 15", "timer kill 20000"}));
}

TEST_F(AgentStateTest, ALostPeerReportIsNeverTheCause) {
  job(2, true);
  sends(0, error(ErrorKind::kLostPeer));
  exits(0, 1);
  EXPECT_EQ(dies(1, SIGKILL), Lines{"sweep"});  // not the agent but another process sent this SIGKILL
  EXPECT_EQ(swept(), Lines{"finish 137"});
  EXPECT_EQ(last_failure().first.rank, 1);
  EXPECT_EQ(last_failure().consequences.at(0).cause, Cause::kLostPeer);
}

TEST_F(AgentStateTest, ALaterOwnExitCodeIsTheCause) {
  job(2, true);
  sends(0, error(ErrorKind::kLostPeer));
  exits(0, 1);
  EXPECT_EQ(exits(1, 7), Lines{"sweep"});  // if the stop had caused this exit, its code would be 85 or 143
  EXPECT_EQ(swept(), Lines{"finish 7"});
  EXPECT_EQ(last_failure().first.rank, 1);
  EXPECT_EQ(last_failure().first.cause, Cause::kExitCode);
}

TEST_F(AgentStateTest, TheEarlierFailureIsTheCause) {
  job(3, false);
  on(WorkerExited{2, 1, {.code = 5}, 900});
  // Rank 0 exits after the agent has requested the stop. So this exit is a consequence of the failure of rank 2.
  on(WorkerExited{0, 1, {.code = 6}, 800});
  dies(1, SIGTERM);
  EXPECT_EQ(swept(), Lines{"finish 5"});
}

// Rank 1 wrote its error file but did not exit. Rank 0 failed because of rank 1's error and exited first.
TEST_F(AgentStateTest, AnErrorFileFromBeforeTheStopIsTheCause) {
  job(2, false);
  const std::int64_t on_checkpoint_written = now_.realtime_ns + 5'000'000;
  on(WorkerExited{0, 100, {.code = 1}, on_checkpoint_written + 1});
  const ErrorFile file{.path = "/e", .message = "ValueError: x", .call_stack = "stack", .timestamp_ns = on_checkpoint_written};
  on(WorkerExited{1, 101, {.signal = SIGTERM}, now_.realtime_ns + 1, file});
  swept();
  const Failure& first = last_failure().first;
  EXPECT_EQ(first.rank, 1);
  EXPECT_EQ(first.cause, Cause::kException);
  EXPECT_EQ(first.message, "ValueError: x");
  EXPECT_EQ(first.call_stack, "stack");
  EXPECT_EQ(first.error_file, "/e");
  EXPECT_EQ(first.time_ns, on_checkpoint_written);
}

TEST_F(AgentStateTest, AnErrorFileFromAfterTheStopIsAConsequence) {
  job(2, false);
  exits(0, 3);
  const ErrorFile file{.message = "SignalException", .timestamp_ns = now_.realtime_ns + 5'000'000};
  on(WorkerExited{1, 101, {.code = 1}, now_.realtime_ns + 10'000'000, file});
  EXPECT_EQ(swept(), Lines{"finish 3"});
  EXPECT_EQ(last_failure().first.rank, 0);
  EXPECT_EQ(last_failure().consequences.at(0).cause, Cause::kStopped);
}

TEST_F(AgentStateTest, TheEarlierErrorFileIsTheCause) {
  job(2, false);
  const std::int64_t start = now_.realtime_ns;
  on(WorkerExited{0, 100, {.code = 4}, start + 20, ErrorFile{.message = "late", .timestamp_ns = start + 9}});
  on(WorkerExited{1, 101, {.code = 5}, start + 30, ErrorFile{.message = "early", .timestamp_ns = start + 8}});
  EXPECT_EQ(swept(), Lines{"finish 5"});
}

TEST_F(AgentStateTest, TypedErrorsDecide) {
  job(2, true, 3);
  sends(0, error(ErrorKind::kUsage));
  exits(0, 2);
  dies(1, SIGTERM);
  EXPECT_EQ(swept(), Lines{"finish 2"});
  EXPECT_EQ(last_failure().first.cause, Cause::kUsage);
  EXPECT_EQ(last_failure().first.message, "because");
}

TEST_F(AgentStateTest, WithoutATypedErrorExit2IsAnOrdinaryFailure) {
  job(1, true, 3);
  exits(0, 2);
  EXPECT_EQ(swept(), Lines{"start 1 restarts 1"});
}

TEST_F(AgentStateTest, WarningsAreNotFailures) {
  job(1, true, 3);
  channel::WorkerError warning = error(ErrorKind::kCheckpoint);
  warning.fatal = false;
  sends(0, warning);
  exits(0, 1);
  EXPECT_EQ(swept(), Lines{"start 1 restarts 1"});
}

TEST_F(AgentStateTest, TwoFailuresAtOneStepEndTheJob) {
  job(1, true, 3);
  sends(0, channel::CheckpointPublished{.step = 40, .path = ""});
  sends(0, error(ErrorKind::kException, 41));
  exits(0, 1);
  EXPECT_EQ(swept(), Lines{"start 1 restarts 1"});
  sends(0, error(ErrorKind::kException, 41));
  exits(0, 1);
  EXPECT_EQ(swept(), Lines{"finish 83"});
}

// ---- stopping by a signal ----

TEST_F(AgentStateTest, AScriptReceivesTheSignal) {
  job(2, false, 3);
  EXPECT_EQ(on(SignalArrived{SIGINT}), (Lines{"signal 0,1 2", "timer kill 20000"}));
  exits(0, 0);
  EXPECT_EQ(exits(1, 1), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 130"});
}

TEST_F(AgentStateTest, LeftoversOfAStoppedJobGetTheRemainingTime) {
  job(1, false);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(exits(0, 3), Lines{"sweep"});
  EXPECT_EQ(sweep_.how, How::kStop);
  EXPECT_EQ(sweep_.timeout, milliseconds(19990));
  EXPECT_EQ(swept(), Lines{"finish 143"});
}

TEST_F(AgentStateTest, ASignalToTheWorkersGivesLeftoversFullTime) {
  job(1, false);
  EXPECT_EQ(dies(0, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(sweep_.how, How::kEnd);
  EXPECT_EQ(on(SignalArrived{SIGTERM}), Lines{"sweep"});
  EXPECT_EQ(sweep_.how, How::kStop);
  EXPECT_EQ(sweep_.timeout, milliseconds(20000));
}

TEST_F(AgentStateTest, OnlyARestartDoesNotWaitForLeftovers) {
  job(1, false, 1);
  EXPECT_EQ(exits(0, 3), Lines{"sweep"});
  EXPECT_EQ(sweep_.how, How::kEnd);
  EXPECT_TRUE(sweep_.next_round);
  EXPECT_EQ(sweep_.timeout, milliseconds(20000));
  swept();
  EXPECT_EQ(exits(0, 4), Lines{"sweep"});  // no restart, because the restart budget is spent
  EXPECT_FALSE(sweep_.next_round);
  job(1, false, 1);
  EXPECT_EQ(exits(0, 0), Lines{"sweep"});
  EXPECT_EQ(sweep_.how, How::kDone);
  EXPECT_FALSE(sweep_.next_round);
}

TEST_F(AgentStateTest, LeftoversOfKilledWorkersAreKilled) {
  job(1, false);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(TimerFired{AgentTimer::kKill}), Lines{"signal 0 9"});
  EXPECT_EQ(dies(0, SIGKILL), Lines{"sweep"});
  EXPECT_EQ(sweep_.how, How::kKill);
}

TEST_F(AgentStateTest, ASecondInterruptKillsImmediately) {
  job(2, false);
  on(SignalArrived{SIGINT});
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{"signal 0,1 9"});
  dies(0, SIGKILL);
  EXPECT_EQ(dies(1, SIGKILL), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 130"});
}

TEST_F(AgentStateTest, OnlyARepeatedKeyboardSignalKills) {
  job(2, false);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(SignalArrived{SIGTERM}), Lines{});  // Slurm repeats SIGTERM at a time limit, so the second SIGTERM is ignored
  EXPECT_EQ(on(SignalArrived{SIGHUP}), Lines{});
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{});
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{"signal 0,1 9"});
}

TEST_F(AgentStateTest, ARepeatedSigtermDoesNotEndTheSave) {
  job(2, true, 3);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(SignalArrived{SIGTERM}), Lines{});
  sends(0, channel::StopReady{4});
  EXPECT_EQ(sends(1, channel::StopReady{5}), Lines{"send 0,1 stop-at 5"});
  exits(0, 85);
  exits(1, 85);
  EXPECT_EQ(swept(), Lines{"finish 85"});
}

// The reason contains "after saving" only if the job has saved a checkpoint.
TEST_F(AgentStateTest, AStopReportsTheSavedState) {
  const auto why_after = [&](std::int64_t steps, bool published) {
    job(1, true);
    sends(0, channel::PhaseChange{.phase = Phase::kRunning, .step = steps});
    on(SignalArrived{SIGTERM});
    sends(0, channel::StopReady{steps});
    if (published) sends(0, channel::CheckpointPublished{.step = steps});
    exits(0, 85);
    EXPECT_EQ(swept(), Lines{"finish 85"});
    return std::get<RunEnded>(events_.back()).why;
  };
  EXPECT_EQ(why_after(40, true), "stopped by SIGTERM after saving: run the job again to continue");
  EXPECT_EQ(why_after(40, false), "stopped by SIGTERM; the newest checkpoint is up to date: run the job again to continue");
  EXPECT_EQ(why_after(0, false),
            "stopped by SIGTERM before the first training step, so there was no state to save: run the job again to start");
}

TEST_F(AgentStateTest, AMemberThatCannotHoldRequestsASave) {
  for (const bool channel : {false, true}) {
    member(channel);
    released(1);
    EXPECT_EQ(on(SignalArrived{SIGTERM}), Lines{channel ? "requests to save and stop 15" : "requests to stop 15"});
  }
}

TEST_F(AgentStateTest, ASecondSignalDuringASweepKillsLeftovers) {
  job(1, false);
  on(SignalArrived{SIGINT});
  EXPECT_EQ(dies(0, SIGINT), Lines{"sweep"});
  EXPECT_EQ(sweep_.how, How::kStop);
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{"sweep"});
  EXPECT_EQ(sweep_.how, How::kKill);
  EXPECT_EQ(swept(), Lines{"finish 130"});
}

TEST_F(AgentStateTest, ChannelWorkersAgreeOnAStepAndSave) {
  job(2, true);
  EXPECT_EQ(on(SignalArrived{SIGTERM}), (Lines{"send 0,1 save", "timer save 15000"}));
  EXPECT_EQ(sends(0, channel::StopReady{10}), Lines{});
  EXPECT_EQ(sends(1, channel::StopReady{12}), Lines{"send 0,1 stop-at 12"});
  EXPECT_EQ(sends(1, channel::StopReady{12}), Lines{"send 1 stop-at 12"});  // only rank 1 has repeated its message
  exits(1, 85);
  EXPECT_EQ(exits(0, 85), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 85"});
}

TEST_F(AgentStateTest, ADoneWorkerNeedNotAnswer) {
  job(2, true);
  sends(1, channel::PhaseChange{.phase = Phase::kDone});
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(sends(0, channel::StopReady{10}), Lines{"send 0,1 stop-at 10"});
  exits(1, 0);
  exits(0, 0);
  EXPECT_EQ(swept(), Lines{"finish 0"});  // the workers had finished the job before the stop
}

TEST_F(AgentStateTest, ALateSaveIsStopped) {
  job(2, true);
  on(SignalArrived{SIGTERM});
  sends(0, channel::StopReady{10});
  EXPECT_EQ(on(TimerFired{AgentTimer::kSave}), (Lines{"send 0,1 now", "signal 0,1 15", "timer kill 5000"}));
  dies(0, SIGTERM);
  EXPECT_EQ(on(TimerFired{AgentTimer::kKill}), Lines{"signal 1 9"});
  EXPECT_EQ(dies(1, SIGKILL), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 143"});
}

// The message of rank 1 would complete the agreement on a last step. But the message arrives after the save timeout, so the
// agent must send no further message.
TEST_F(AgentStateTest, AWorkerMayFinishAfterALateSave) {
  job(2, true);
  on(SignalArrived{SIGTERM});
  sends(0, channel::StopReady{10});
  on(TimerFired{AgentTimer::kSave});
  EXPECT_EQ(sends(1, channel::PhaseChange{.phase = Phase::kDone}), Lines{});
}

TEST_F(AgentStateTest, AFailureWhileSavingStopsTheRest) {
  job(2, true);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(dies(1, SIGSEGV), (Lines{"send 0 now", "signal 0 15", "timer kill 5000"}));
  exits(0, 1);
  EXPECT_EQ(swept(), Lines{"finish 143"});
}

TEST_F(AgentStateTest, WorkersWithoutAHelloAreSignalled) {
  state_.emplace(AgentSettings{.world_size = 2, .workers_have_channel = true});
  on(Begin{});
  sends(0, channel::Hello{});
  EXPECT_EQ(on(SignalArrived{SIGINT}), (Lines{"send 0,1 now", "signal 0,1 15", "timer kill 30000"}));
}

TEST_F(AgentStateTest, ASignalToAWorkerIsHandledByTheAgent) {
  job(1, true);
  EXPECT_EQ(sends(0, channel::SignalReceived{SIGTERM}), Lines{"send 0 carry"});
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(sends(0, channel::SignalReceived{SIGTERM}), Lines{"send 0 save"});
}

TEST_F(AgentStateTest, AScriptsSignalReportSavesAndStopsTheJob) {
  job(2, false, 3);
  sends(0, channel::SavesOnStop{});
  sends(1, channel::SavesOnStop{});
  EXPECT_EQ(sends(1, channel::SignalReceived{SIGTERM}), (Lines{"send 0,1 save", "timer save 15000"}));
  EXPECT_EQ(on(SignalArrived{SIGTERM}), Lines{}) << "the agent's own, where all processes were signalled";
  EXPECT_EQ(sends(0, channel::SignalReceived{SIGTERM}), Lines{"send 0 save"});
  sends(0, channel::StopReady{3});
  sends(1, channel::StopReady{3});
  exits(0, 85);
  exits(1, 85);
  EXPECT_EQ(swept(), Lines{"finish 85"});
}

TEST_F(AgentStateTest, AScriptsCtrlCReportIsNotAKeyboardSignal) {
  job(1, false);
  sends(0, channel::SavesOnStop{});
  EXPECT_EQ(sends(0, channel::SignalReceived{SIGINT}), (Lines{"send 0 save", "timer save 15000"}));
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{});
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{"signal 0 9"});
}

TEST_F(AgentStateTest, AReportedSignalIsForwardedIfSomeCannotSave) {
  job(2, false, 3);
  sends(0, channel::SavesOnStop{});
  EXPECT_EQ(sends(0, channel::SignalReceived{SIGTERM}), (Lines{"send 0 now", "signal 0,1 15", "timer kill 20000"}));
  EXPECT_EQ(sends(0, channel::SignalReceived{SIGTERM}), Lines{"send 0 now"});
}

TEST_F(AgentStateTest, AMembersSignalReportReachesTheCoordinatorOnce) {
  member();
  released(0);
  sends(0, channel::SavesOnStop{});
  sends(1, channel::SavesOnStop{});
  EXPECT_EQ(sends(0, channel::SignalReceived{SIGTERM}), Lines{"requests to save and stop 15"});
  EXPECT_EQ(sends(1, channel::SignalReceived{SIGTERM}), Lines{});
  EXPECT_EQ(on(SaveOrdered{SIGTERM}), (Lines{"send 0,1 save", "timer save 15000"}));
}

TEST_F(AgentStateTest, PreemptedWorkersEndTheJob) {
  job(2, true, 3);
  EXPECT_EQ(exits(0, 85), (Lines{"send 1 now", "signal 1 15", "timer kill 20000"}));
  exits(1, 85);
  EXPECT_EQ(swept(), Lines{"finish 85"});
}

// ---- scripts that report over the worker channel ----

TEST_F(AgentStateTest, ScriptsThatCanSaveAgreeOnAStep) {
  job(2, false, 3);
  sends(0, channel::SavesOnStop{});
  sends(1, channel::SavesOnStop{});
  EXPECT_EQ(on(SignalArrived{SIGTERM}), (Lines{"send 0,1 save", "timer save 15000"}));
  EXPECT_EQ(sends(0, channel::StopReady{10}), Lines{});
  EXPECT_EQ(sends(1, channel::StopReady{12}), Lines{"send 0,1 stop-at 12"});
  exits(0, 85);
  EXPECT_EQ(exits(1, 85), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"finish 85"});
  EXPECT_EQ(std::get<RunEnded>(events_.back()).why, "stopped by SIGTERM after saving: run the job again to continue");
}

TEST_F(AgentStateTest, IfOneScriptCannotSaveAllGetTheSignal) {
  job(2, false, 3);
  sends(0, channel::Hello{});
  sends(0, channel::SavesOnStop{});
  sends(1, channel::Hello{});
  EXPECT_EQ(on(SignalArrived{SIGINT}), (Lines{"send 0 now", "signal 0,1 2", "timer kill 20000"}))
      << "a rank that waits for the agreement is ordered to stop";
}

TEST_F(AgentStateTest, AScriptThatReturnsAfterSavingIsUnfinished) {
  job(2, false);
  for (const int rank : {0, 1}) sends(rank, channel::SavesOnStop{});
  on(SignalArrived{SIGTERM});
  for (const int rank : {0, 1}) sends(rank, channel::StopReady{3});
  for (const int rank : {0, 1}) sends(rank, channel::PhaseChange{.phase = Phase::kSaving, .step = 3});
  exits(0, 0);
  exits(1, 0);
  EXPECT_EQ(swept(), Lines{"finish 85"});
}

TEST_F(AgentStateTest, AScriptThatEndsBeforeTheStepIsDone) {
  job(2, false);
  for (const int rank : {0, 1}) sends(rank, channel::SavesOnStop{});
  on(SignalArrived{SIGTERM});
  for (const int rank : {0, 1}) sends(rank, channel::StopReady{3});
  exits(0, 0);
  exits(1, 0);
  EXPECT_EQ(swept(), Lines{"finish 0"});
}

TEST_F(AgentStateTest, ALateScriptIsStoppedUnsaved) {
  job(1, false);
  sends(0, channel::SavesOnStop{});
  on(SignalArrived{SIGTERM});
  sends(0, channel::StopReady{3});
  sends(0, channel::PhaseChange{.phase = Phase::kSaving, .step = 3});
  EXPECT_EQ(on(TimerFired{AgentTimer::kSave}), (Lines{"send 0 now", "signal 0 15", "timer kill 5000"}));
  exits(0, 0);
  EXPECT_EQ(swept(), Lines{"finish 143"});
  EXPECT_EQ(std::get<RunEnded>(events_.back()).why, "stopped by SIGTERM before it could save");
}

TEST_F(AgentStateTest, ATypedErrorOfAScriptSetsTheCause) {
  job(1, false, 3);
  sends(0, error(ErrorKind::kUsage, 17));
  exits(0, 1);
  EXPECT_EQ(swept(), Lines{"finish 1"});
  EXPECT_EQ(last_failure().first.cause, Cause::kUsage);
}

TEST_F(AgentStateTest, AScriptFailingTwiceAtOneStepEnds) {
  job(1, false, 5);
  sends(0, channel::Progress{.step = 7});
  exits(0, 3);
  EXPECT_EQ(swept(), Lines{"start 1 restarts 1"});
  sends(0, channel::Progress{.step = 7});
  exits(0, 3);
  EXPECT_EQ(swept(), Lines{"finish 83"});
}

// ---- versions ----

TEST_F(AgentStateTest, AHelperOfAnotherMajorVersionIsIgnored) {
  job(1, false);
  EXPECT_EQ(sends(0, channel::Hello{.protocol = 2, .version = "helper", .minor = 3}), Lines{});
  const auto& ignored = std::get<HelperIgnored>(events_.back());
  EXPECT_EQ(describe(ignored),
            "rank 0: helper uses version 2.3 of the worker channel, this ddprun uses version 1.4: install both from the same "
            "release; its reports are ignored, and the job continues");
  exits(0, 0);
  EXPECT_EQ(swept(), Lines{"finish 0"});
}

TEST_F(AgentStateTest, AWorkerOfAnotherMajorVersionIsRefused) {
  state_.emplace(AgentSettings{.world_size = 2, .workers_have_channel = true, .restarts = {.max_restarts = 3}});
  on(Begin{});
  sends(0, channel::Hello{.minor = 99});  // accepted, because a newer minor version is compatible
  EXPECT_EQ(sends(1, channel::Hello{.protocol = 2, .version = "ddptrain 9.0", .minor = 0}), Lines{"signal 1 9"});
  dies(1, SIGKILL);
  dies(0, SIGTERM);
  EXPECT_EQ(swept(), Lines{"finish 2"});
  EXPECT_EQ(last_failure().first.cause, Cause::kUsage);
  EXPECT_EQ(last_failure().first.message,
            "ddptrain 9.0 uses version 2.0 of the worker channel, this ddprun uses version 1.4: install both from the same "
            "release");
  EXPECT_FALSE(last_failure().first.status.has_value()) << "that it was killed is how, not why";
}

TEST_F(AgentStateTest, AWorkerThatExitsSilentlyIsAUsageError) {
  state_.emplace(AgentSettings{.world_size = 1, .workers_have_channel = true, .restarts = {.max_restarts = 3}});
  on(Begin{});
  exits(0, 0);
  EXPECT_EQ(swept(), Lines{"finish 2"});
  EXPECT_EQ(last_failure().first.cause, Cause::kUsage);
  EXPECT_TRUE(last_failure().first.message.starts_with("it exited with code 0 without sending a message to ddprun"));
}

TEST_F(AgentStateTest, ARefusedWorkerAlwaysFails) {
  state_.emplace(AgentSettings{.world_size = 1, .workers_have_channel = true});
  on(Begin{});
  sends(0, channel::Hello{.protocol = 2});
  exits(0, 0);
  EXPECT_EQ(swept(), Lines{"finish 2"});
}

TEST_F(AgentStateTest, Exit85OfAScriptIsAnOrdinaryFailure) {
  job(1, false, 1);
  exits(0, 85);
  EXPECT_EQ(swept(), Lines{"start 1 restarts 1"});
}

// Rank 0 has already started to train when rank 1 reports that it finds no data. If rank 1 runs ddptrain or a C++ loop, it is
// restarted. If it runs a script, the job ends.
TEST_F(AgentStateTest, ADataErrorOfAScriptEndsTheJob) {
  const auto rank_1_finds_no_data = [this](bool of_ddptrain, bool of_loop) {
    job(2, of_ddptrain, 3);
    if (of_loop) sends(0, channel::Regroupable{});
    sends(0, channel::PhaseChange{.phase = Phase::kRunning});
    sends(1, error(ErrorKind::kUsage));
    exits(1, 1);
    dies(0, SIGTERM);
    swept();
    return last_failure().first.cause;
  };
  EXPECT_EQ(rank_1_finds_no_data(false, false), Cause::kUsage);
  EXPECT_EQ(rank_1_finds_no_data(true, false), Cause::kLateUsage);
  EXPECT_EQ(rank_1_finds_no_data(false, true), Cause::kLateUsage);
}

TEST_F(AgentStateTest, ASignalWhileStoppingForAFailureMeansNoRestart) {
  job(2, false, 3);
  exits(0, 1);
  EXPECT_EQ(on(SignalArrived{SIGTERM}), Lines{});
  dies(1, SIGTERM);
  EXPECT_EQ(swept(), Lines{"finish 143"});
  EXPECT_EQ(last_failure().first.rank, 0);
}

// For any order of events, the job must end exactly once, with an exit code. The agent must never signal a rank that has ended.
TEST(AgentState, EndsUnderAnyOrderOfEvents) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const int world_size = 1 + static_cast<int>(random() % 4);
    const bool has_channel = random() % 2 == 0;
    AgentState state({.world_size = world_size,
                      .workers_have_channel = has_channel,
                      .shutdown_timeout = milliseconds(random() % 3 == 0 ? 0 : 1000),
                      .restarts = {.max_restarts = static_cast<int>(random() % 3), .refill_by_progress = false}});
    Instant now{std::chrono::steady_clock::time_point{}, 1};
    std::vector<bool> live(static_cast<std::size_t>(world_size), false);
    std::vector<bool> doomed(live);
    bool sweeping = false;
    int finishes = 0;
    std::array<bool, 3> timers{};
    const auto feed = [&](const AgentEvent& event) {
      now.realtime_ns += 1'000'000;
      now.steady += milliseconds(1);
      for (const AgentAction& action : state.on(event, now)) {
        if (std::holds_alternative<agent_action::StartRound>(action)) {
          EXPECT_FALSE(sweeping);
          live.assign(live.size(), true);
          doomed.assign(live.size(), false);
        }
        if (const auto* signal = std::get_if<agent_action::SendSignal>(&action)) {
          for (const int rank : signal->ranks) {
            EXPECT_TRUE(live[static_cast<std::size_t>(rank)]);
            if (signal->signal == SIGKILL) doomed[static_cast<std::size_t>(rank)] = true;
          }
        }
        if (std::holds_alternative<agent_action::Sweep>(action)) sweeping = true;
        if (const auto* set = std::get_if<agent_action::SetTimer>(&action)) timers[static_cast<std::size_t>(set->timer)] = true;
        if (const auto* cancel = std::get_if<agent_action::CancelTimer>(&action))
          timers[static_cast<std::size_t>(cancel->timer)] = false;
        if (std::holds_alternative<agent_action::Finish>(action)) ++finishes;
      }
    };
    feed(Begin{});
    for (int i = 0; i < 20000 && finishes == 0; ++i) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(world_size));
      const auto index = static_cast<std::size_t>(rank);
      switch (random() % 8) {
        case 0:
          if (has_channel) feed(WorkerMessageReceived{rank, channel::Hello{}});
          break;
        case 1:
          if (live[index]) {
            live[index] = false;
            const bool killed = doomed[index] || random() % 3 == 0;
            const int codes[] = {0, 0, 1, 2, 85};
            feed(WorkerExited{
                rank, 1, {.code = killed ? 0 : codes[random() % 5], .signal = killed ? SIGKILL : 0}, now.realtime_ns});
          }
          break;
        case 2:
          if (random() % 20 == 0) feed(SignalArrived{random() % 2 == 0 ? SIGTERM : SIGINT});
          break;
        case 3:
          if (has_channel) feed(WorkerMessageReceived{rank, channel::StopReady{static_cast<std::int64_t>(random() % 100)}});
          break;
        case 4:
          if (has_channel) feed(WorkerMessageReceived{rank, channel::SignalReceived{SIGTERM}});
          break;
        case 5:
          if (const auto which = random() % 3; timers[which]) {
            timers[which] = false;
            feed(TimerFired{static_cast<AgentTimer>(which)});
          }
          break;
        case 6:
          if (sweeping) {
            sweeping = false;
            feed(RoundSwept{});
          }
          break;
        case 7:
          if (has_channel && live[index] && random() % 10 == 0) {
            channel::WorkerError worker_error;
            worker_error.kind = static_cast<ErrorKind>(random() % 6);
            feed(WorkerMessageReceived{rank, worker_error});
          }
          break;
      }
    }
    EXPECT_EQ(finishes, 1);
  }
}

// ---- one of several nodes ----

TEST_F(AgentStateTest, AMemberStartsNothingBeforeItsRelease) {
  member();
  EXPECT_EQ(begin_, Lines{});
  EXPECT_EQ(released(4, 1), Lines{"start 4 restarts 1"});
  exits(0, 0);
  EXPECT_EQ(exits(1, 0), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"over done"});
  EXPECT_EQ(on(JobEnded{0, "done"}), Lines{"finish 0"});
}

TEST_F(AgentStateTest, AMemberReportsTheFirstFailureImmediately) {
  member();
  released(0);
  EXPECT_EQ(exits(1, 7), (Lines{"report rank 3 exit_code", "signal 0 15", "timer kill 20000"}));
  EXPECT_EQ(dies(0, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"over ended"});
  EXPECT_EQ(released(1, 1), Lines{"start 1 restarts 1"});
  EXPECT_EQ(last_failure().first.rank, 3);
  EXPECT_EQ(last_failure().first.local_rank, 1);
  EXPECT_EQ(last_failure().decision, RoundFailed::Decision::kRestart);
}

TEST_F(AgentStateTest, AMemberReportsALaterCause) {
  member(true);
  released(0);
  sends(0, channel::Hello{});
  sends(1, channel::Hello{});
  sends(0, error(ErrorKind::kLostPeer));
  EXPECT_EQ(exits(0, 1).front(), "report rank 2 lost_peer");
  EXPECT_EQ(dies(1, SIGSEGV), Lines{"sweep"});
  EXPECT_EQ(swept(), (Lines{"report rank 3 signal", "over ended"}));
}

TEST_F(AgentStateTest, AMemberStopsForARemoteFailure) {
  member();
  released(0);
  Failure other;
  other.rank = 0;
  other.status = ExitStatus{.code = 9};
  EXPECT_EQ(on(StopOrdered{false, "because", other}), (Lines{"signal 0,1 15", "timer kill 20000"}));
  dies(0, SIGTERM);
  EXPECT_EQ(dies(1, SIGTERM), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"over ended"});  // no failure is reported, because no worker of this node has failed
  EXPECT_EQ(on(JobEnded{9, "worker 0: exit code 9"}), Lines{"finish 9"});
  EXPECT_EQ(last_failure().first.rank, 0);
  EXPECT_EQ(last_failure().decision, RoundFailed::Decision::kGiveUp);
}

// The node's worker is stuck in the kernel. The node leaves the job, so that the other nodes do not wait for it. The guardian
// of the node stays until the kernel ends the worker.
TEST_F(AgentStateTest, AMemberWithAStuckWorkerLeaves) {
  member();
  released(0);
  EXPECT_EQ(on(WorkerStuck{1, 101, "in D"}),
            (Lines{"signal 1 9", "report rank 3 uninterruptible", "signal 0 15", "timer kill 20000"}));
  EXPECT_EQ(dies(0, SIGTERM), Lines{"finish 89 abandoning"});
  std::string why;
  for (const RunEvent& event : events_) {
    if (const auto* end = std::get_if<RunEnded>(&event)) why = end->why;
  }
  EXPECT_TRUE(why.starts_with("worker 3: in D")) << why;
  EXPECT_EQ(last_failure().first.rank, 3);
  EXPECT_EQ(last_failure().first.cause, Cause::kStuck);
  EXPECT_EQ(last_failure().decision, RoundFailed::Decision::kGiveUp);
  EXPECT_EQ(released(1, 1), Lines{}) << "the next round is the others'";
}

TEST_F(AgentStateTest, AStoppedMemberWithAStuckWorkerLeaves) {
  member();
  released(0);
  Failure other;
  other.rank = 0;
  other.status = ExitStatus{.code = 9};
  on(StopOrdered{false, "because", other});
  EXPECT_EQ(dies(0, SIGTERM), Lines{});
  EXPECT_EQ(on(WorkerStuck{1, 101, "in D"}).back(), "finish 89 abandoning");
}

TEST_F(AgentStateTest, AMemberWithoutALeaseKillsItsWorkers) {
  member();
  released(0);
  EXPECT_EQ(on(StopOrdered{true, "no coordinator", {}}), Lines{"signal 0,1 9"});
}

TEST_F(AgentStateTest, ACutOffMemberReportsNoFailure) {
  member();
  released(0);
  EXPECT_EQ(on(StopOrdered{.immediately = true, .why = "", .failure = {}, .unanswered_s = 4.0}), Lines{"signal 0,1 9"});
  dies(0, SIGKILL);
  EXPECT_EQ(dies(1, SIGKILL), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"over ended"});
  ASSERT_EQ(cuts().size(), 1U);
  EXPECT_EQ(cuts().front().seconds, 4.0);
}

TEST_F(AgentStateTest, TheGuardianMayKillACutOffMemberFirst) {
  member();
  released(0);
  const auto killed = [&](int rank) {
    return on(WorkerExited{.rank = rank,
                           .pid = 100 + rank,
                           .status = {.code = 0, .signal = SIGKILL},
                           .time_ns = now_.realtime_ns,
                           .unanswered_s = 4.0});
  };
  EXPECT_EQ(killed(0), Lines{"signal 1 9"});
  on(StopOrdered{.immediately = true, .why = "", .failure = {}, .unanswered_s = 4.0});
  EXPECT_EQ(killed(1), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"over ended"});
  EXPECT_EQ(cuts().size(), 1U);  // the second request to stop causes no further event
}

TEST_F(AgentStateTest, AScriptStoppedWithExit0IsNotDone) {
  member();
  released(0);
  on(SignalArrived{SIGTERM});
  EXPECT_EQ(on(SaveOrdered{SIGTERM}), (Lines{"signal 0,1 15", "timer kill 20000"}));
  exits(0, 0);
  EXPECT_EQ(exits(1, 0), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"over ended"});
  EXPECT_EQ(on(JobEnded{143, "stopped"}), Lines{"finish 143"});
}

TEST_F(AgentStateTest, NodesAgreeOnTheSaveStep) {
  member(true);
  released(0);
  sends(0, channel::Hello{});
  sends(1, channel::Hello{});
  EXPECT_EQ(on(SignalArrived{SIGTERM}), Lines{"requests to save and stop 15"});
  EXPECT_EQ(on(SaveOrdered{SIGTERM}), (Lines{"send 0,1 save", "timer save 15000"}));
  EXPECT_EQ(sends(0, channel::StopReady{5}), Lines{});
  EXPECT_EQ(sends(1, channel::StopReady{6}), Lines{"started 6"});
  // Step 8 is agreed, because a rank on another node has already started step 8.
  EXPECT_EQ(on(StepAgreed{8}), Lines{"send 0,1 stop-at 8"});
  exits(0, 85);
  EXPECT_EQ(exits(1, 85), Lines{"sweep"});
  EXPECT_EQ(swept(), Lines{"over saved"});
  EXPECT_EQ(on(JobEnded{85, "saved"}), Lines{"finish 85"});
}

// In a job that runs a script on two nodes, the workers of the script agree on a last step, like the workers of ddptrain.
TEST_F(AgentStateTest, AMembersScriptsSaveIfAllCan) {
  member();
  released(0);
  sends(0, channel::SavesOnStop{});
  sends(1, channel::SavesOnStop{});
  EXPECT_EQ(on(SignalArrived{SIGTERM}), Lines{"requests to save and stop 15"});
  EXPECT_EQ(on(SaveOrdered{SIGTERM}), (Lines{"send 0,1 save", "timer save 15000"}));
  sends(0, channel::StopReady{5});
  EXPECT_EQ(sends(1, channel::StopReady{6}), Lines{"started 6"});
  EXPECT_EQ(on(StepAgreed{8}), Lines{"send 0,1 stop-at 8"});
  for (const int rank : {0, 1}) sends(rank, channel::PhaseChange{.phase = Phase::kSaving, .step = 8});
  exits(0, 0);
  exits(1, 0);
  EXPECT_EQ(swept(), Lines{"over saved"});
}

TEST_F(AgentStateTest, AMembersScriptsStoppedDuringASaveAreUnsaved) {
  member();
  released(0);
  sends(0, channel::SavesOnStop{});
  sends(1, channel::SavesOnStop{});
  on(SaveOrdered{SIGTERM});
  on(TimerFired{AgentTimer::kSave});
  exits(0, 0);
  exits(1, 0);
  EXPECT_EQ(swept(), Lines{"over ended"});
}

TEST_F(AgentStateTest, ASecondSignalNeedsNoCoordinator) {
  member();
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{"requests to stop 2"});
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{"finish 130"});
  member();
  released(0);
  on(SignalArrived{SIGINT});
  EXPECT_EQ(on(SignalArrived{SIGINT}), Lines{"signal 0,1 9"});
}

}  // namespace
}  // namespace ddprun
