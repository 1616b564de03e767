// Finds the first cause of a round's failure: which workers failed independently, which failed as a consequence, and why. It
// reads the agent's records of its workers. JudgedRound adds the facts about the round that the restart policy needs: its
// number, its start, the step from which it continued, and the restarts so far. The policy
// (launcher/restart_policy/job_judge.hpp) decides what follows, on one machine and on many. The code is pure: no I/O, no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "launcher/agent_state/round_workers.hpp"
#include "launcher/restart_policy/restart_policy.hpp"

namespace ddprun {

// Classes of failures, in order of priority. The first cause is the earliest failure in the first class that is not empty.
enum class Blame {
  kFailed,  // the worker hangs, or failed before it was ordered to stop
  // The worker failed after the order to stop, but for another reason: it reported an error, or its signal or exit code cannot
  // come from the stop.
  kFailedWhileStopped,
  kLostPeer,  // reported that the connection to another worker was lost
  kStopped,   // the worker exited because it was ordered to stop
};

Blame blame_of(const WorkerRecord& worker, bool has_channel);

// Describes the failure of the worker with this local rank. Call this only for a worker that has failed.
Failure worker_failure(const RoundWorkers& workers, int rank);

// The current round and its failures. Between two rounds it describes the last round.
class JudgedRound {
 public:
  JudgedRound(const RoundWorkers& workers, AgentTurn& turn);

  // ---- the round's start ----

  // Call this when the coordinator of a multi-node job starts the next round. `release` contains the ranks of this node.
  void set_release(const agent_event::RoundReleased& release);
  void begin();
  // Counts the replacement of a lost worker as another round. Checkpoints that were written so far count as progress of the
  // previous round.
  void begin_regroup();
  void announce(bool regroup);
  // Call this when all ranks have joined the group and continue from this step. The restart policy detects progress by
  // comparing the steps at which rounds start.
  void note_first_step(std::int64_t step);

  int number() const { return number_; }
  Instant started() const { return started_; }
  std::optional<std::int64_t> first_step() const { return first_step_; }
  const agent_event::RoundReleased& release() const { return release_; }
  int restart_count() const { return budget_.restart_count; }
  RestartFacts restart_facts() const { return facts_of(budget_.history); }
  // Returns the action that starts a new process for a rank.
  agent_action::StartWorker new_worker(int rank) const { return {rank, number_, restart_count(), restart_facts()}; }

  // ---- the round's failures ----

  void note_end(const WorkerRecord& ended);
  // Call this if a regroup that has already started also handles the newest failure. The failure then does not count as the
  // first failure of a round.
  void forget_failure() { first_failed_at_.reset(); }
  // Returns true if a worker failed before the agent ordered it to stop.
  bool failed_before_stop() const { return first_failed_at_.has_value(); }
  // Returns true if at least one worker failed for a reason other than an order to stop.
  bool any_by_itself() const;
  // Returns the first cause among the failures so far. Returns nullopt if no worker has failed.
  std::optional<Failure> first_failure() const;
  // Returns all failures of the round, starting with the first cause. Call this only if a worker has failed. The decision in
  // the result is kGiveUp until the restart policy decides.
  RoundFailed judged() const;
  // Returns the facts about the first cause that the restart policy needs.
  FailedRound record_of(const Failure& first) const;
  // Returns the restart policy's decision about this failure, but does not apply it. Call this only in a job on one machine.
  rendezvous::Verdict verdict_on(const Failure& first) const;
  // Applies the decision to restart: counts the restart and emits RoundFailed with the reason why the job continues.
  void restart(RoundFailed event, RoundFailed::Decision how, const rendezvous::Verdict& verdict);

 private:
  const RoundWorkers& workers_;
  AgentTurn& turn_;
  int number_;
  // The coordinator's message for this round. On one machine it has the values of a job with a single node.
  agent_event::RoundReleased release_;
  // The restarts so far. In a multi-node job the coordinator stores them, and only restart_count is valid here.
  rendezvous::Budget budget_;
  Instant started_;
  // Time at which the agent handled the round's first failure.
  std::optional<std::chrono::steady_clock::time_point> first_failed_at_;
  std::int64_t resumed_from_ = -1;  // same meaning as FailedRound::resumed_from
  std::optional<std::int64_t> first_step_;
};

}  // namespace ddprun
