// What one node's agent does, as a pure state machine. Events and the time come in, actions go out (agent_event.hpp,
// agent_action.hpp). It touches no process, socket, file or clock. launcher/agent/agent_shell.hpp feeds it and carries out the
// actions. agent_state.cpp has all transitions.
//
// The problem. When one worker fails, the other ranks of its group hang in a collective or fail as a consequence. Exits,
// messages, signals, timers and orders of the coordinator then arrive in any order. In each order the agent must find the first
// cause and leave no worker behind. It must end the job once, with one exit code.
//
// How it goes wrong. Code that reacts to one event at a time fails in cases like these:
// - Rank 0 crashes, rank 1 reports a lost peer, and the exit of rank 1 arrives first. The first exit need not be the cause. So
//   round_judgement.hpp judges the end of a round from all workers.
// - A SIGTERM arrives while the workers stop for a failure. That stop must continue, but no round may follow it.
// - Slurm repeats SIGTERM while the workers save. A second SIGTERM must not end the save; a second Ctrl-C must.
// - A SIGTERM arrives while a replacement loads. To kill all workers would lose the steps that only the survivors hold.
//
// The idea. One variable holds the phase. A handler looks at the phase and returns actions as values:
//
//     idle -> running -> [saving ->] [stopping ->] sweeping -> finished, or -> [pausing ->] running
//             running -> holding -> running, saving or stopping      a member: workers wait for the next round
//                                          sweeping -> idle          a member: the coordinator decides what follows
//
// In "sweeping" every worker has ended, and the processes that they left behind end. An example without live recovery:
//
//     WorkerExited{1}, SIGSEGV   running  -> stopping   Tell{0, Stop{now}}, SendSignal{0, SIGTERM}, SetTimer{kKill}
//     TimerFired{kKill}          stopping               SendSignal{0, SIGKILL}
//     WorkerExited{0}, SIGKILL   stopping -> sweeping   Sweep
//     RoundSwept                 sweeping -> running    Emit{RoundFailed}, StartRound; job_judge.hpp allowed a restart
//
// SIGKILL follows SIGTERM after --shutdown-timeout (30 s), or earlier after a save or a failed regroup. With live recovery the
// survivors keep their state. A new worker or a standby (standbys.hpp) takes the lost rank. Such a regroup (regroup.hpp)
// stays in phase running: hangs, timers and signals need the same handling as in training. On many machines the agent is a
// member (rendezvous/member/member.hpp, launcher/network/job_link.hpp): it reports and obeys. The coordinator starts rounds,
// decides on restarts and ends the job. Only its next release has the new ranks. So the survivors of a member hold: they leave
// their group and wait with their state.
//
// The cost. agent_state.cpp is long. Members that only one phase uses exist in all phases; check() catches misuse at run time.
// What was tried. A variant with one struct per phase: nine of 22 members outlive their phase, as the judgement reads them
// (docs/internals/decisions/launcher/phases-in-one-struct.md). One machine as a coordinator with one node: the member would
// need standbys and regroups with several losses, which only the agent of one machine has (one-judge.md).
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
  bool workers_have_channel = false;  // the workers run ddptrain; a script may ignore its channel
  int first_round = 0;                // round numbers continue over the invocations of a run directory
  std::chrono::milliseconds shutdown_timeout{30000};
  RestartLimits restarts{};
  // Time limit for a regroup: a lost worker is replaced while the others keep their state. Zero: each failure ends the round.
  // The limit is at least twice the time that the workers needed for their start. Only for workers that report Regroupable.
  std::chrono::milliseconds regroup_limit{0};
  // Number of standbys that wait to replace a lost worker, if regroup_limit is not zero. For scripts: number of spare
  // interpreters that wait to become workers of the next round.
  int standbys = 0;
  int spares_at_once = 1;  // spare interpreters that load at the same time, at most
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

  // Number of this invocation's first round in messages.
  int first_round() const { return settings_.first_round; }
  // Workers run, and no stop or hold is under way. Only then is missing progress evidence of a hang.
  bool at_work() const { return phase_ == Phase::kRunning; }
  // on() has returned the action Finish.
  bool finished() const { return phase_ == Phase::kFinished; }
  // The first cause among the known failures of this round; nullopt if no worker has failed.
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
  // The input of judge_round().
  JudgedRound round() const;
  RoundFailed judged() const { return judge_round(round(), now_.realtime_ns); }
  FailedRound record_of(const Failure& first) const;
  rendezvous::Verdict verdict_on(const Failure& first) const;
  void restart(RoundFailed event, RoundFailed::Decision how, const rendezvous::Verdict& verdict);
  void end_failed_round();
  void finish(int exit_code, const std::string& why);

  std::vector<int> live_ranks() const;  // excludes stuck workers
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
  decltype(Instant::steady) began_{};  // start of the invocation
  std::vector<AgentAction> actions_;

  // State of the running round, or of the last one between two rounds. begin_round() resets all of it.
  struct ThisRound {
    Instant started;
    std::optional<std::chrono::steady_clock::time_point> first_failure{};  // when the agent learned of it
    std::int64_t resumed_from = -1;                                        // as in FailedRound
    std::optional<std::int64_t> began_at{};                                // the step at which the group was complete
    std::optional<Failure> reported{};                                     // the failure that was sent to the coordinator
    bool cut_off = false;
    bool script_speaks = false;  // or has run for kSparesAfter: spares may start
    bool fell_back = false;      // a regroup failed; the next round is the restart that was counted for that loss
    // For a stop that saves.
    std::optional<std::chrono::steady_clock::time_point> stop_waits_since{};  // start of a stop that waits for a regroup
    bool save_asked = false;
    bool saves_without_lost = false;
    std::optional<StopAgreement> agreement{};
    std::optional<std::int64_t> agreed_step{};
    // For a stop.
    bool told_now = false;        // workers were ordered to stop or were killed, saved or not
    bool left_by_itself = false;  // a worker exited with kPreempted without a stop order
    bool kill_rest = false;       // a second Ctrl-C during the sweep: kill leftovers
    std::optional<std::chrono::steady_clock::time_point> stop_ends{};  // SIGKILL follows at that time
  };
  ThisRound this_round_;

  int round_ = -1;
  std::vector<WorkerRecord> workers_;
  std::int64_t newest_checkpoint_ = -1;
  rendezvous::Budget budget_;  // multi-node: owned by the coordinator, only restart_count is valid here
  int rank_offset_ = 0;
  int job_world_size_ = 1;
  int group_rank_ = 0;
  int round_generation_ = 0;  // multi-node: generation of the round's process group
  int nodes_ = 1;
  std::optional<RoundFailed> verdict_;  // the last round's failure, emitted with the coordinator's decision

  bool has_trained_ = false;                          // any worker has trained, in any round
  bool regroupable_ = false;                          // a worker has reported Regroupable; its report holds for all
  std::chrono::steady_clock::duration came_up_in_{};  // time that the newest round of new workers needed to start
  std::optional<PendingRegroup> regroup_;             // set during a regroup
  std::set<int> successors_;                          // ranks whose replacements must be started
  std::set<int> together_;                            // in a round with new workers: ranks that are in the group
  Standbys standbys_;
  int stops_when_together_ = 0;  // signal of a stop that waits for the regroup; 0: none

  // ---- a member whose workers wait for the next round ----
  Instant held_since_;
  bool dismissing_held_ = false;  // held workers are being stopped; the end of the round was reported before
  std::optional<agent_event::RoundReleased> next_release_;  // handled when the held workers have ended
  std::optional<agent_event::JobEnded> job_over_;           // handled when the held workers have ended

  std::string reason_;                                   // reason of the current stop, sent to the workers
  int stop_signal_ = 0;                                  // the first signal that stops the job; 0: none
  int signals_by_person_ = 0;                            // number of SIGINTs and SIGQUITs, which a keyboard sends
  std::optional<agent_event::AgentFailed> own_failure_;  // the agent's own failure, which ends the job
};

}  // namespace ddprun
