// What one node's agent does, as a pure state machine: events and the time come in, actions go out (agent_event.hpp,
// agent_action.hpp). It touches no process, socket, file or clock. launcher/agent/agent_shell.hpp feeds it and carries the
// actions out. Read this and agent_state.cpp to know what happens when. It also ends workers that do not end by themselves:
// SIGTERM first, and SIGKILL after --shutdown-timeout (30 s), by stop_now() and kill_all().
//
// In a job on many machines the agent is a member: it does not decide when a round starts, whether a failed round is tried
// again or when the job ends. It reports and obeys (rendezvous/member/member.hpp; launcher/network/job_link.hpp connects the
// two).
//
// When one of several workers with a channel is lost, the others may keep their processes: the next round then starts only the
// lost worker (regroup.hpp), or a standby takes its place (standbys.hpp). The workers of a member wait for the next round
// meanwhile.
//
// A round's phases:  running -> [stopping | saving] -> sweeping -> over, then the job ends, or the next round starts, maybe
// after a pause;  or  running -> holding -> running. In "sweeping" every worker has ended, and what they left behind ends.
// Workers that are told to stop have the shutdown timeout for it, or less after a save or a failed regroup. Then the guardian
// is told to kill them.
//
// round_judgement.hpp says what a round's end was due to, launcher/verdict/job_judge.hpp what follows from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/check.hpp"
#include "common/channel/message.hpp"
#include "launcher/decide/agent_action.hpp"
#include "launcher/decide/agent_event.hpp"
#include "launcher/decide/regroup.hpp"
#include "launcher/decide/round_judgement.hpp"
#include "launcher/decide/standbys.hpp"
#include "launcher/decide/stop_agreement.hpp"
#include "launcher/decide/worker_record.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/verdict/restart_policy.hpp"

namespace ddprun {

struct AgentSettings {
  int world_size = 1;  // workers on this node
  enum class Mode { kAlone, kMember } mode = Mode::kAlone;
  bool workers_have_channel = false;  // they are ddptrain's workers; a script may use its channel or not
  int first_round = 0;                // round numbers continue over the invocations of a run directory
  std::chrono::milliseconds shutdown_timeout{30000};
  RestartLimits restarts{};
  // A lost worker is replaced while the others keep their state; zero: never, a failure ends the round. The replacement must
  // not take longer than this, or than twice the round's own start. Only for workers that say that they can regroup.
  std::chrono::milliseconds regroup_limit{0};
  // Workers that wait to replace a lost one, if regroup_limit allows that; of a script, interpreters that wait to become
  // workers of the next round.
  int standbys = 0;
  int spares_at_once = 1;  // of those interpreters, how many load at the same time
};

struct Instant {
  std::chrono::steady_clock::time_point steady;
  std::int64_t realtime_ns = 0;
};

class AgentState {
 public:
  explicit AgentState(AgentSettings settings);

  // Handles one event. Carry out the actions in order. After Finish, events have no effect.
  std::vector<AgentAction> on(const AgentEvent& event, Instant now);

  // The number of its first round in messages.
  int first_round() const { return settings_.first_round; }
  // Workers are running and nobody stops them: then their silence matters.
  bool at_work() const { return phase_ == Phase::kRunning; }
  // The action Finish was returned.
  bool finished() const { return phase_ == Phase::kFinished; }
  // Why the workers of this round are being stopped, as far as it is known now; nothing when no worker has failed.
  std::optional<Failure> first_failure() const;

 private:
  enum class Phase { kIdle, kRunning, kSaving, kStopping, kHolding, kSweeping, kPausing, kFinished };

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
  void handle(const agent_event::ScriptSpeaks&);
  void handle(const agent_event::SpareUnresponsive& event);
  void handle(const agent_event::TimerFired& event);
  void handle(const agent_event::AgentFailed& event);
  void handle(const agent_event::RoundSwept&);
  void handle(const agent_event::RoundReleased& event);
  void handle(const agent_event::StopOrdered& event);
  void handle(const agent_event::HeldDismissed& event);
  void handle(const agent_event::SaveOrdered& event);
  void handle(const agent_event::StepAgreed& event);
  void handle(const agent_event::JobEnded& event);

  void hear(int rank, const channel::Hello& message);
  void hear(int rank, const channel::PhaseChange& message);
  void hear(int rank, const channel::SignalReceived& message);
  void hear(int rank, const channel::StopReady& message);
  void hear(int rank, const channel::WorkerError& message);
  void hear(int rank, const channel::RegroupReady& message);
  void hear(int rank, const channel::GroupFormed& message);

  void stop_job(int signal, StopRequested::Effect effect);
  void start_round();
  void worker_gone(int rank);
  void refuse_silent(WorkerRecord& ended);
  void cut_off(double unanswered_s);
  void stop_for_failure(int rank);
  bool replace(int rank);
  bool save_without_the_lost(const std::set<int>& alive);
  std::set<int> live_survivors() const;
  bool save_with_survivors();
  void abandon_replacements(const std::set<int>& alive);
  void hold_for_stop(const std::set<int>& alive);
  void save_what_is_held();
  bool others_have_saved(int lost) const;
  std::string what_was_saved() const;
  void expect_anew(int rank);
  void start_successors();
  void leave_regroup();
  void give_up_regroup(const std::string& why);
  void begins_at(std::int64_t step);
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
  bool keeps_spares() const { return !settings_.workers_have_channel; }
  std::vector<int> take_spares();
  void start_missing_spares();
  void dismiss_standbys();
  bool was_still_standby(int rank) const;
  void begin_round();
  void announce_round(bool regroup);
  void begin_saving(const std::vector<int>& ranks);
  void announce_agreed_step();
  void tell_step(std::int64_t step);
  void report_failure(const Failure& failure, bool others_stay);
  void end_round_of_member();
  void tell_verdict(RoundFailed::Decision decision, const std::string& why);
  void stop_by_signal(int signal);
  void stop_now(int signal, std::chrono::milliseconds grace);
  void kill_all();
  void sweep();
  void order_sweep();
  bool next_round_follows() const;
  void note_end_of_stop(std::chrono::milliseconds time) { this_round_.stop_ends = now_.steady + time; }
  void end_with_stuck_workers();
  void end_stopped_job();
  void end_after_own_failure();
  // The round's workers, for round_judgement.hpp.
  JudgedRound round() const;
  RoundFailed judged() const { return judge_round(round(), now_.realtime_ns); }
  FailedRound record_of(const Failure& first) const;
  rendezvous::Verdict verdict_on(const Failure& first) const;
  void restart(RoundFailed event, RoundFailed::Decision how, const rendezvous::Verdict& verdict);
  void end_failed_round();
  void finish(int exit_code, const std::string& why);

  std::vector<int> live_ranks() const;  // without stuck ones
  bool any_stuck() const;
  bool all_can_save() const;
  bool has_saved(const WorkerRecord& worker) const;
  bool all_have_saved() const;
  bool member() const { return settings_.mode == AgentSettings::Mode::kMember; }
  int global(int rank) const { return rank_offset_ + rank; }
  WorkerRecord& worker(int rank) { return of_rank(workers_, rank); }
  const WorkerRecord& worker(int rank) const { return of_rank(workers_, rank); }
  void ask_to_stop(WorkerRecord& worker);
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
  decltype(Instant::steady) began_{};  // when the invocation began
  std::vector<AgentAction> actions_;

  // What is known of the round that runs, or of the last one while none does. Nothing of it outlives the next round's begin.
  struct ThisRound {
    Instant started;
    std::optional<std::chrono::steady_clock::time_point> first_failure{};  // when it was heard
    std::int64_t resumed_from = -1;                                        // as in FailedRound
    std::optional<std::int64_t> began_at{};                                // the step at which all were together
    std::optional<Failure> reported{};                                     // to the coordinator
    bool cut_off = false;
    bool script_speaks = false;  // or has run for long enough: spares may be started
    bool fell_back = false;      // a regroup failed: the next round is the restart for that loss
    // Saving, since somebody asked for it.
    std::optional<std::chrono::steady_clock::time_point> stop_waits_since{};  // for a regroup
    bool save_asked = false;
    bool saves_without_lost = false;
    std::optional<StopAgreement> agreement{};
    std::optional<std::int64_t> agreed_step{};
    // Stopping.
    bool told_now = false;                                             // to stop, saved or not
    bool left_by_itself = false;                                       // a worker exited kPreempted unasked
    bool kill_rest = false;                                            // a person insists
    std::optional<std::chrono::steady_clock::time_point> stop_ends{};  // then SIGKILL follows
  };
  ThisRound this_round_;

  int round_ = -1;
  std::vector<WorkerRecord> workers_;
  std::int64_t newest_checkpoint_ = -1;
  rendezvous::Budget budget_;  // of a job on many machines its coordinator keeps it, and only restart_count is known here
  int rank_offset_ = 0;
  int job_world_size_ = 1;
  int group_rank_ = 0;
  int round_generation_ = 0;  // of the round's group, for workers with a channel
  int nodes_ = 1;
  std::optional<RoundFailed> verdict_;  // the last round's verdict, which waits for the coordinator's decision

  bool has_trained_ = false;                          // any worker has trained, in any round
  bool regroupable_ = false;                          // the workers have said that they can regroup
  std::chrono::steady_clock::duration came_up_in_{};  // how long the newest round with new workers took to start
  std::optional<PendingRegroup> regroup_;             // under way
  std::set<int> successors_;                          // ranks whose replacements must be started
  std::set<int> together_;                            // in a round with new workers: ranks that are in the group
  Standbys standbys_;
  int stops_when_together_ = 0;  // the signal after which they stop then

  // ---- of a member whose workers wait for the next round ----
  Instant held_since_;
  bool dismissing_held_ = false;                            // they are being stopped; that the round is over was said before
  std::optional<agent_event::RoundReleased> next_release_;  // waits for that
  std::optional<agent_event::JobEnded> job_over_;           // likewise

  std::string reason_;                                   // of the current stop, for the workers
  int stop_signal_ = 0;                                  // the first that reached the agent
  int signals_by_person_ = 0;                            // from the keyboard: SIGINT, SIGQUIT
  std::optional<agent_event::AgentFailed> own_failure_;  // the job ends for it
};

}  // namespace ddprun
