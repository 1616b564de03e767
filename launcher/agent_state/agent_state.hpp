// The agent of one node as a pure state machine: it does not access processes, sockets, files or clocks. The agent's shell
// (launcher/agent/agent_shell.hpp) passes events and the time to it (agent_event.hpp) and carries out the actions that it
// returns (agent_action.hpp). All transitions are in agent_state.cpp.
//
// The problem. When one worker fails, the other ranks hang in a collective or fail as a consequence. Exits, messages, signals,
// expired timers and the coordinator's orders then arrive in any sequence. In each case the agent must find the first cause
// and leave no worker running. It must end the job exactly once, with one exit code.
//
// How it goes wrong. Code that reacts to one event at a time fails in cases like these:
// - Rank 0 crashes and rank 1 loses its connection to rank 0, but the exit of rank 1 is reported first. The first exit need not
//   be the cause. So round_judgement.hpp compares all workers at the end of a round (one start of all workers).
// - A SIGTERM arrives while the workers are being stopped after a failure. The stop must continue, but no round may follow.
// - Slurm repeats SIGTERM while the workers save. A second SIGTERM must not interrupt the save, but a second Ctrl-C must.
// - A SIGTERM arrives while the replacement of a lost worker loads. If all workers were killed, the newest steps would be lost,
//   since only the surviving workers have them.
//
// The idea. One variable holds the phase. A handler reads the phase and returns actions as values:
//
//     idle -> running -> [saving ->] [stopping ->] sweeping -> finished, or -> [pausing ->] running
//             running -> holding -> running, saving or stopping      multi-node: workers wait for the next round
//                                          sweeping -> idle          multi-node: the coordinator decides what follows
//
// In phase "sweeping" every worker has exited. The guardian (the parent process of the workers) ends the processes that the
// workers left behind. An example without live recovery:
//
//     WorkerExited{1}, SIGSEGV   running  -> stopping   SendMessage{0, Stop{now}}, SendSignal{0, SIGTERM}, SetTimer{kKill}
//     TimerFired{kKill}          stopping               SendSignal{0, SIGKILL}
//     WorkerExited{0}, SIGKILL   stopping -> sweeping   Sweep
//     RoundSwept                 sweeping -> running    Emit{RoundFailed}, StartRound; job_judge.hpp allowed a restart
//
// SIGKILL follows SIGTERM after --shutdown-timeout (30 s), or earlier after a save or a failed regroup. With live recovery the
// surviving workers keep their state, and a new process or a standby gets the lost rank. The phase stays "running" during such
// a regroup, because hangs, timers and signals are handled as in training.
//
// In a multi-node job the coordinator starts rounds, decides on restarts and ends the job. The agent of each node reports to it
// and carries out its orders (rendezvous/member/member.hpp, launcher/network/job_link.hpp). After a loss, the coordinator sends
// the new ranks only with the next round. Until then the surviving workers are held: they leave their process group, keep
// their state and wait.
//
// AgentState contains the transitions. State with a shorter lifetime, and code that does not depend on the phase, are in
// separate classes:
//
//     round_workers.hpp      the records of this round's workers: their reports, and queries about them
//     stop_in_progress.hpp   the stop of a round and of the job, from the order to save to SIGKILL
//     regroup.hpp            live recovery: which ranks stay, which are replaced, when the group is complete
//     standbys.hpp           standbys and spare interpreters
//     held_workers.hpp       multi-node: workers that wait for the next round
//     round_judgement.hpp    the first cause of a round's failure, and the restarts so far
//     job_ending.hpp         the end of the job and its exit code, as a pure function
//
// These classes share the records of the workers and append their actions to one AgentTurn. Only AgentState::become() changes
// the phase.
//
// The cost. Data members that only one phase uses exist in all phases. So only checks at run time can detect their misuse; the
// compiler cannot. Rejected alternatives: (1) A variant with one struct per phase. Nine of 22 data members outlive their
// phase, because the judgement reads them later (docs/internals/decisions/launcher/phases-in-one-struct.md). (2) A job on one
// machine as a coordinator with one node. Multi-node agents would then need standbys and regroups after several lost ranks,
// which only the agent of a single machine supports (one-judge.md).
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent_state/held_workers.hpp"
#include "launcher/agent_state/job_ending.hpp"
#include "launcher/agent_state/regroup.hpp"
#include "launcher/agent_state/standbys.hpp"

namespace ddprun {

class AgentState {
 public:
  explicit AgentState(const AgentSettings& settings) : settings_(settings) {}
  AgentState(AgentState&&) = delete;  // deleted, since members hold references to other members

  // Handles one event and returns the actions, which the caller must carry out in order. After the action Finish, events have
  // no effect.
  std::vector<AgentAction> on(const AgentEvent& event, Instant now);

  // Returns the number of the first round since ddprun was started, as shown in messages.
  int first_round() const { return settings_.first_round; }
  // Returns true while workers run and are neither being stopped nor held. Only in this state does missing progress indicate a
  // hang.
  bool at_work() const { return phase_ == Phase::kRunning; }
  // Returns true after on() has returned the action Finish.
  bool finished() const { return phase_ == Phase::kFinished; }
  // Returns the first cause among this round's failures so far. Returns nullopt if no worker has failed.
  std::optional<Failure> first_failure() const { return round_.first_failure(); }

 private:
  enum class Phase { kIdle, kRunning, kSaving, kStopping, kHolding, kSweeping, kPausing, kFinished };

  void handle(const agent_event::Begin&);
  void handle(const agent_event::WorkerExited& event);
  void handle(const agent_event::SpawnFailed& event);
  void handle(const agent_event::WorkerMessageReceived& event);
  void handle(const agent_event::SignalArrived& event);
  void handle(const agent_event::TimerExpired& event);
  void handle(const agent_event::HangFound& event);
  void handle(const agent_event::WorkerStuck& event);
  void handle(const agent_event::StandbyReady& event);
  void handle(const agent_event::StandbyGone& event) { standbys_.gone(event); }
  void handle(const agent_event::ScriptPrinted&);
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

  void on_message(int rank, const channel::PhaseChange& message);
  void on_message(int rank, const channel::SignalReceived& message);
  void on_message(int rank, const channel::GroupFormed& message);

  // ---- the phase ----
  void become(Phase next);
  void become_saving(const std::vector<int>& ranks);
  void become_stopping(int signal, std::chrono::milliseconds grace);
  void become_holding(std::vector<int> ranks, bool for_stop = false);
  void become_sweeping();

  // ---- a round ----
  void start_round();
  void worker_gone(int rank);
  void lose(int rank);
  void stop_for_failure(int rank);
  void cut_off(double unanswered_s);
  void stop_job(int signal, StopRequested::Effect effect);
  void stop_by_signal(int signal);
  void kill_all();
  void order_sweep();
  bool next_round_follows() const;
  void start_missing_standbys();
  void start_missing_spares();

  // ---- a round's end ----
  EndFacts end_facts(std::optional<rendezvous::Verdict> verdict = std::nullopt) const;
  void end_job();
  void finish(const JobEnding& ending);

  // ---- a lost worker ----
  bool can_regroup() const { return settings_.regroup_limit.count() > 0 && workers_.regroupable(); }
  bool others_may_stay(int lost) const;
  bool replace(int rank);
  bool save_without_lost(const std::set<int>& alive);
  bool save_with_survivors();
  void stop_after_regroup(int signal);
  void give_up_regroup(const std::string& why);

  // ---- a member ----
  void report_failure(const Failure& failure);
  void end_round_of_member();
  void publish_verdict(RoundFailed::Decision decision, const std::string& why);
  bool hold_after(int rank);
  void continue_round();
  void dismiss_held(const std::string& why);

  AgentSettings settings_;
  AgentTurn turn_;
  Phase phase_ = Phase::kIdle;
  RoundWorkers workers_{settings_, turn_};
  JudgedRound round_{workers_, turn_};
  StopInProgress stop_{settings_, workers_, turn_};
  StandbyRules standbys_{settings_, turn_};
  LiveRecovery recovery_{workers_, round_, standbys_, turn_};
  HeldWorkers held_{turn_};

  std::optional<RoundFailed> verdict_;   // failure of the last round, emitted when the coordinator's decision arrives
  std::optional<Failure> reported_;      // failure of this round that was reported to the coordinator
  bool script_printed_ = false;          // true after the script's first output in this round, or after 10 s: spares may start
  int keyboard_signals_ = 0;             // number of keyboard signals (SIGINT, SIGQUIT) received so far
  decltype(Instant::steady) started_{};  // time at which ddprun was started
};

}  // namespace ddprun
