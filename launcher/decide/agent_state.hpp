// What one node's agent does, as a pure state machine: everything that happens comes in as an event with the time, everything
// that must be done comes out as actions; nothing in it touches a process, a socket or a clock. launcher/agent/agent.cpp is the
// shell that carries the actions out. Read this and agent_state.cpp to know what happens when.
//
// An agent of a job on many machines is a member: it does not decide when a round starts, whether a failed one is tried again
// or when the job ends, but reports and obeys (agent_member.cpp; rendezvous/machines/member.hpp; launcher/network/job_link.cpp
// connects the two).
//
// When one of several workers with a channel is lost, the others may stay: the next round then has their processes, and only
// the lost one is started anew (regroup.hpp, agent_regroup.cpp), or a standby takes its place (standbys.hpp,
// agent_standby.cpp). A member's wait for the next round meanwhile (agent_hold.cpp).
//
// A round goes  starting/running -> [stopping | saving] -> sweeping -> over; then the job ends, or the next round starts, maybe
// after a pause; or  running -> holding -> running. "Sweeping" is when every worker has ended and what they left behind is
// killed. agent_judgement.cpp says what a round's end was due to.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/channel/message.hpp"
#include "launcher/decide/regroup.hpp"
#include "launcher/decide/standbys.hpp"
#include "launcher/decide/stop_agreement.hpp"
#include "launcher/events/error_file.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/verdict/hang_verdict.hpp"
#include "launcher/verdict/oom_verdict.hpp"
#include "launcher/verdict/restart_policy.hpp"

namespace ddprun {

struct AgentSettings {
  int world_size = 1;  // workers on this node
  enum class Mode { kAlone, kMember } mode = Mode::kAlone;
  bool workers_have_channel = false;
  int first_round = 0;  // rounds are counted on over the invocations of a run directory
  std::chrono::milliseconds shutdown_timeout{30000};
  RestartLimits restarts{};
  // A lost worker is replaced while the others keep their state; zero: never, a failure ends the round. Longer than this, or
  // than twice the round's own start, it must not take. Workers with a channel only.
  std::chrono::milliseconds regroup_limit{0};
  int standbys = 0;  // workers that wait to replace a lost one, while regroup_limit allows that
};

struct Instant {
  std::chrono::steady_clock::time_point steady;
  std::int64_t realtime_ns = 0;
};

enum class AgentTimer {
  kSave,     // saving has taken too long: stop without it
  kKill,     // stopping has taken too long: SIGKILL
  kPause,    // before the next round
  kRegroup,  // regrouping has taken too long: stop and start anew
  kReplace,  // before the lost workers' successors start
};

namespace agent_event {
struct Begin {};
struct WorkerExited {
  int rank = 0;
  std::int64_t pid = 0;
  ExitStatus status;
  std::int64_t time_ns = 0;
  std::optional<ErrorFile> error_file{};  // what it left behind when it ended badly
  OomVerdict memory{};
  // Killed by the guardian, since for so many seconds no coordinator had answered a member that its workers may run on.
  std::optional<double> unanswered_s{};
};
// The worker's program could not be executed, or no process could be made for it.
struct SpawnFailed {
  int rank = 0;
  int error = 0;  // errno
  std::string message;
  std::int64_t time_ns = 0;
};
struct WorkerSaid {
  int rank = 0;
  channel::FromWorker message;
};
struct SignalArrived {
  int signal = 0;
};
// A timer that a worker had set itself is overdue (file_timer_server.hpp).
struct TimerExpired {
  int rank = 0;
  int signal = 0;  // the one it asked for
  std::string message;
};
// The round makes no progress: who is to blame, and what every worker is at.
struct HangFound {
  std::vector<HangFinding> findings;
};
// A worker has been in uninterruptible sleep for the allowed time.
struct WorkerStuck {
  int rank = 0;
  std::int64_t pid = 0;
  std::string message;
};
// A standby waits for its rank. Numbers are the agent's, above those of the ranks.
struct StandbyReady {
  int number = 0;
};
// It ended while it waited, or could not be started.
struct StandbyGone {
  int number = 0;
  std::int64_t pid = 0;
  std::optional<ExitStatus> status{};
  std::string message{};
  std::int64_t time_ns = 0;
};
struct TimerFired {
  AgentTimer timer{};
};
// Nothing of the round is left: no worker, no descendant, no open pipe.
struct RoundSwept {};

// ---- to a member, from the coordinator ----

// The next round, which this node is part of.
struct RoundReleased {
  int round = 0;
  int restart_count = 0;
  int rank_offset = 0;  // global rank of the first worker here
  int world_size = 1;   // of the job
  int group_rank = 0;
  int nodes = 1;
};
// The round is over.
struct StopOrdered {
  bool at_once = false;                  // SIGKILL
  std::string why;                       // for people
  std::optional<Failure> failure;        // of a worker of another node, when that is why
  std::optional<double> unanswered_s{};  // as of WorkerExited: the coordinator does not answer, and it is over with them
  bool hold = false;                     // workers that can may wait for the next round with their state
};
// The state of those that wait for the next round is not to be kept.
struct HeldDismissed {
  std::string why;
};
// A signal ends the job: the workers agree on a step and save.
struct SaveOrdered {
  int signal = 0;
};
struct StepAgreed {
  std::int64_t step = 0;
};
// The workers are gone, and that is all.
struct JobEnded {
  int exit_code = 0;
  std::string why;
};
}  // namespace agent_event

using AgentEvent =
    std::variant<agent_event::Begin, agent_event::WorkerExited, agent_event::SpawnFailed, agent_event::WorkerSaid,
                 agent_event::SignalArrived, agent_event::TimerExpired, agent_event::HangFound, agent_event::WorkerStuck,
                 agent_event::StandbyReady, agent_event::StandbyGone, agent_event::TimerFired, agent_event::RoundSwept,
                 agent_event::RoundReleased, agent_event::StopOrdered, agent_event::HeldDismissed, agent_event::SaveOrdered,
                 agent_event::StepAgreed, agent_event::JobEnded>;

namespace agent_action {
struct StartRound {
  int round = 0;
  int restart_count = 0;  // of this invocation
};
// The next round of a member whose workers have waited for it; StartWorker follows for each that is missing.
struct ContinueRound {
  int round = 0;
  int restart_count = 0;
};
// In the place of a lost worker, beside those that stay.
struct StartWorker {
  int rank = 0;
  int round = 0;
  int restart_count = 0;
};
// The same by a standby, which may still be loading.
struct TakeOver {
  int standby = 0;  // its number
  int rank = 0;
  int round = 0;
  int restart_count = 0;
};
struct StartStandby {
  int number = 0;
};
// SIGKILL to all that wait: they hold nothing.
struct DismissStandbys {};
struct Tell {  // over the channel; ranks that have none or are gone are skipped
  std::vector<int> ranks;
  channel::FromAgent message;
};
struct SendSignal {  // to the process groups of these workers
  std::vector<int> ranks;
  int signal = 0;
};
// Kill what the round left behind and answer with RoundSwept. Patient: only SIGTERM to those that have not had a signal yet,
// and wait; an impatient one may follow.
struct Sweep {
  bool patient = false;
};
struct SetTimer {
  AgentTimer timer{};
  std::chrono::milliseconds after{};
};
struct CancelTimer {
  AgentTimer timer{};
};
struct Emit {
  RunEvent event;
};
// ---- of a member, for the coordinator ----

// A worker failed; said at once, and once more if another one turns out to be the first cause.
struct ReportFailure {
  Failure failure;
  FailedRound record;
  bool others_stay = false;  // the state of the other workers is sound
};
// Everything of the round is gone, or waits for the next one. Done: all workers ended well.
struct ReportRoundOver {
  enum class How { kDone, kSaved, kEnded } how = How::kEnded;
  std::optional<int> leaves_with{};  // this node is of no more use: its own exit code
};
struct ReportSignal {
  int signal = 0;
};
// Answer to SaveOrdered: the most steps that a worker here has started; -1: none will start any more.
struct ReportSteps {
  std::int64_t started = -1;
};
struct Finish {
  int exit_code = 0;
  bool abandon = false;  // a process that cannot be killed is left: don't wait for it
};
}  // namespace agent_action

using AgentAction =
    std::variant<agent_action::StartRound, agent_action::ContinueRound, agent_action::StartWorker, agent_action::TakeOver,
                 agent_action::StartStandby, agent_action::DismissStandbys, agent_action::Tell, agent_action::SendSignal,
                 agent_action::Sweep, agent_action::SetTimer, agent_action::CancelTimer, agent_action::Emit,
                 agent_action::ReportFailure, agent_action::ReportRoundOver, agent_action::ReportSignal,
                 agent_action::ReportSteps, agent_action::Finish>;

class AgentState {
 public:
  explicit AgentState(AgentSettings settings);

  // Feeds one event; the actions are to be carried out in order. After Finish no event has an effect.
  std::vector<AgentAction> on(const AgentEvent& event, Instant now);

  // Workers are at work and nobody is stopping them: whether it matters that they are silent.
  bool at_work() const { return phase_ == Phase::kRunning; }

 private:
  enum class Phase { kIdle, kRunning, kSaving, kStopping, kHolding, kSweeping, kPausing, kFinished };

  struct Worker {
    bool live = false;
    bool said_hello = false;
    bool heard = false;          // anything, as this rank
    std::optional<int> standby;  // its number, when it was one
    bool says_done = false;
    bool asked_to_stop = false;  // before it ended
    std::int64_t asked_ns = 0;
    bool killed = false;  // SIGKILL was ours
    std::int64_t pid = 0;
    std::int64_t step = -1;
    std::optional<channel::WorkerError> error;  // fatal, typed
    std::optional<ErrorFile> error_file;
    OomVerdict memory;
    std::optional<ExitStatus> status;
    std::optional<std::string> spawn_error;
    std::optional<std::string> timer_expired;
    std::optional<std::string> hangs;        // why it is to blame
    std::vector<std::string> hang_evidence;  // also of those that wait for it
    std::optional<std::string> stuck;        // nobody waits for it any more
    int spawn_errno = 0;
    std::int64_t ended_ns = 0;
  };

  void handle(const agent_event::Begin&);
  void handle(const agent_event::WorkerExited& event);
  void handle(const agent_event::SpawnFailed& event);
  void handle(const agent_event::WorkerSaid& event);
  void handle(const agent_event::SignalArrived& event);
  void handle(const agent_event::TimerExpired& event);
  void handle(const agent_event::HangFound& event);
  void handle(const agent_event::WorkerStuck& event);
  void handle(const agent_event::StandbyReady& event);
  void handle(const agent_event::StandbyGone& event);
  void handle(const agent_event::TimerFired& event);
  void handle(const agent_event::RoundSwept&);
  void handle(const agent_event::RoundReleased& event);
  void handle(const agent_event::StopOrdered& event);
  void handle(const agent_event::HeldDismissed& event);
  void handle(const agent_event::SaveOrdered& event);
  void handle(const agent_event::StepAgreed& event);
  void handle(const agent_event::JobEnded& event);

  void hear(int rank, const channel::SignalReceived& message);
  void hear(int rank, const channel::StopReady& message);
  void hear(int rank, const channel::WorkerError& message);
  void hear(int rank, const channel::RegroupReady& message);
  void hear(int rank, const channel::Regrouped& message);

  void start_round();
  void worker_gone(int rank);
  void cut_off(double unanswered_s);
  void stop_for_failure(int rank);
  bool replace(int rank);
  void expect_anew(int rank);
  void start_successors();
  void leave_regroup();
  void give_up_regroup(const std::string& why);
  void stop_when_together(int signal);
  bool others_may_stay(int lost) const;
  bool hold_after(int rank);
  bool may_hold() const;
  void hold();
  void continue_round();
  void dismiss_held(const std::string& why);
  void refuse_release();
  bool end_of_held();
  void start_missing_standbys();
  void dismiss_standbys();
  bool was_still_standby(int rank) const;
  void begin_round();
  void announce_round(bool regroup);
  void begin_saving();
  void announce_agreed_step();
  void tell_step(std::int64_t step);
  void report_failure(const Failure& failure, bool others_stay);
  void end_round_of_member();
  void tell_verdict(RoundFailed::Decision decision, const std::string& why);
  void stop_by_signal(int signal);
  void stop_now(int signal, std::chrono::milliseconds grace);
  void kill_all();
  void sweep();
  void end_with_stuck_workers();
  void end_stopped_job();
  RoundFailed judge_round() const;
  FailedRound record_of(const Failure& first) const;
  void end_failed_round();
  void finish(int exit_code, const std::string& why);

  std::vector<int> live_ranks() const;  // and not stuck
  bool any_stuck() const;
  bool member() const { return settings_.mode == AgentSettings::Mode::kMember; }
  int global(int rank) const { return rank_offset_ + rank; }
  Worker& worker(int rank) { return workers_[static_cast<std::size_t>(rank)]; }
  bool failed(const Worker& worker) const;
  void ask_to_stop(Worker& worker);
  bool had_failed_before(const Worker& worker) const;
  std::int64_t known_step(const Worker& worker) const;
  int blame(const Worker& worker) const;
  Failure failure_of(int rank) const;
  channel::Stop stop_message(channel::Stop::Mode mode, std::chrono::milliseconds deadline) const;

  template <class Action>
  void act(Action action) {
    actions_.emplace_back(std::move(action));
  }
  template <class Event>
  void emit(Event event) {
    actions_.emplace_back(agent_action::Emit{RunEvent{std::move(event)}});
  }

  AgentSettings settings_;
  Phase phase_ = Phase::kIdle;
  Instant now_;
  std::vector<AgentAction> actions_;

  int round_ = -1;
  int restarts_ = 0;
  std::vector<Worker> workers_;
  Instant round_started_;
  std::optional<std::chrono::steady_clock::time_point> first_failure_;  // of this round, when it was heard
  std::int64_t resumed_from_ = -1;
  std::int64_t newest_checkpoint_ = -1;
  std::vector<FailedRound> history_;
  int rank_offset_ = 0;
  int job_world_size_ = 1;
  int group_rank_ = 0;
  int round_generation_ = 0;  // of the round's group, for workers with a channel
  int nodes_ = 1;
  std::optional<Failure> reported_;     // of this round
  bool cut_off_ = false;                // in this round
  std::optional<RoundFailed> verdict_;  // of the last round, waiting for what the coordinator decides

  bool regroupable_ = false;                          // the workers say that they can
  std::chrono::steady_clock::duration came_up_in_{};  // the newest round that began with new workers
  std::optional<Regroup> regroup_;                    // under way
  std::set<int> successors_;                          // to be started
  std::set<int> together_;                            // who has said so, of a round that began with new workers
  std::optional<std::int64_t> began_at_;              // the step at which all of the round were together
  Standbys standbys_;
  int stops_when_together_ = 0;  // the signal
  bool fell_back_ = false;       // it came to nothing: the round that follows is that loss's restart

  // ---- of a member whose workers wait for the next round ----
  Instant held_since_;
  bool dismissing_held_ = false;                            // they are being stopped; that the round is over was said before
  std::optional<agent_event::RoundReleased> next_release_;  // waits for that
  std::optional<agent_event::JobEnded> job_over_;           // likewise

  std::optional<StopAgreement> agreement_;
  std::optional<std::int64_t> agreed_step_;
  std::string reason_;           // of the current stop, for the workers
  int stop_signal_ = 0;          // the first that reached the agent
  int signals_by_person_ = 0;    // from the keyboard: SIGINT, SIGQUIT
  bool save_asked_ = false;      // by that signal
  bool left_by_itself_ = false;  // a worker exited kPreempted unasked
  bool patient_sweep_ = false;
};

}  // namespace ddprun
