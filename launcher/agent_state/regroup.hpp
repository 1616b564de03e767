// Live recovery on one node: after the loss of a worker, the other workers keep their processes and their state. A replacement
// gets the lost rank, and all workers form a new process group (a regroup). AgentState decides whether a loss is handled in
// this way. LiveRecovery carries out the regroup and detects when the group is complete. PendingRegroup stores the replies of
// the workers during one regroup. The code is pure: no I/O, no clock. All ranks here are local ranks.
//
//     a worker is lost -> the agent sends Regroup to the other workers and starts a replacement
//          -> RegroupReady from each of them: it has left the old group, and reports the step of its state
//          -> all ranks connect with the new generation number -> GroupFormed from each rank: it is in the new group
//
// How it goes wrong, and what follows:
// - Another worker is lost before its RegroupReady. It becomes part of the same regroup (absorb).
// - Another worker is lost after its RegroupReady. It may already be in the new group, so another regroup starts.
// - A replacement does not load, or a worker does not reply. AgentState's timer kRegroup ends the round.
// - A stop arrives. The workers that have the state save without the replacement (abandon_replacements, form_group).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/base/check.hpp"
#include "launcher/agent_state/round_judgement.hpp"
#include "launcher/agent_state/standbys.hpp"

namespace ddprun {

class PendingRegroup {
 public:
  using Clock = std::chrono::steady_clock;

  // `lost` are the ranks whose workers have exited. `alive` are the ranks whose workers keep running.
  PendingRegroup(int generation, std::set<int> lost, std::set<int> alive, Clock::time_point started_at)
      : generation_(generation), replaced_(std::move(lost)), awaited_(std::move(alive)), started_at_(started_at) {
    for (const int rank : replaced_)
      check(!awaited_.contains(rank), "expected each rank to be either lost or alive, found a rank that is listed as both");
  }

  Clock::time_point started_at() const { return started_at_; }

  // Adds another lost rank. If it had not sent RegroupReady yet, this regroup replaces it too, and the other ranks need no new
  // message. Otherwise it may already be in the new group, so the function returns false and another regroup is needed.
  bool add_lost(int rank) {
    if (awaited_.erase(rank) == 0) return false;
    replaced_.insert(rank);
    return true;
  }

  // Call this when a rank has sent RegroupReady: it has left the old group and has the state after `step` steps (-1: no state).
  void ready(int rank, int generation, std::int64_t step) {
    if (generation == generation_ && awaited_.erase(rank) > 0) kept_[rank] = step;
  }
  // Call this when a rank has sent GroupFormed: it is in the new group. Returns true when all `world` ranks are in this group.
  bool joined(int rank, int generation, std::int64_t step, int world) {
    if (generation != generation_) return false;
    joined_.insert(rank);
    step_ = step;
    return static_cast<int>(joined_.size()) == world;
  }

  // Returns the ranks whose lost worker is replaced by another process.
  const std::set<int>& replaced() const { return replaced_; }
  // Returns the ranks that kept their state. All ranks continue from the newest state among them.
  std::vector<int> keepers() const {
    std::vector<int> ranks;
    for (const auto& [rank, step] : kept_) {
      if (step >= 0) ranks.push_back(rank);
    }
    return ranks;
  }
  std::int64_t step() const { return step_; }
  // Returns the ranks that kept their state, and those that have not yet reported whether they did.
  std::set<int> survivors() const {
    std::set<int> ranks = awaited_;
    for (const int rank : keepers()) ranks.insert(rank);
    return ranks;
  }

 private:
  int generation_;
  std::set<int> replaced_;
  std::set<int> awaited_;             // ranks that have not sent RegroupReady yet
  std::map<int, std::int64_t> kept_;  // ranks that have sent RegroupReady, with the step of their state (-1: none)
  std::set<int> joined_;
  std::int64_t step_ = -1;
  Clock::time_point started_at_;
};

class LiveRecovery {
 public:
  LiveRecovery(RoundWorkers& workers, const JudgedRound& round, StandbyRules& standbys, AgentTurn& turn)
      : workers_(workers), round_(round), standbys_(standbys), turn_(turn) {}

  // Call this when a round starts in which all workers are new processes.
  void begin_round() { group_members_.clear(); }

  bool is_pending() const { return pending_.has_value(); }
  // Returns true during the pause before lost workers are replaced. No replacement process exists yet.
  bool is_paused() const { return !unstarted_.empty(); }
  // Returns the running ranks, which keep their workers if the lost ranks are replaced. The result is empty if any rank has
  // already finished, since the group would never be complete.
  std::set<int> others() const;
  // Returns the running ranks of the pending regroup that have the state, or have not yet reported whether they have it.
  std::set<int> survivors() const;

  // Starts a regroup: the ranks in `alive` keep their workers, and rank `lost` gets another process.
  void replace(int lost, const std::set<int>& alive, int generation);
  // Starts a regroup for a node's next round in a multi-node job. The held workers of the node continue with the state that
  // they kept, and the other ranks get new processes.
  void continue_held(std::chrono::steady_clock::time_point lost_at);
  // Handles another loss during a regroup. Returns true if the same regroup replaces this rank as well.
  bool absorb(int rank);
  // Sets the time limit of the regroup, and starts the replacement workers after the pause.
  void replace_lost(std::chrono::milliseconds pause);
  void start_replacements();

  void on_ready(int rank, const channel::RegroupReady& message);
  // Handles GroupFormed of a rank. When the group is complete, it ends a pending regroup, emits Regrouped, and returns the step
  // from which all ranks continue. Otherwise it returns nullopt.
  std::optional<std::int64_t> on_formed(int rank, const channel::GroupFormed& message);

  void leave();
  // Kills the replacements that are still loading, since ranks outside `alive` have no state. The round then no longer waits
  // for them.
  void abandon_replacements(const std::set<int>& alive);
  // Orders the ranks in `alive` to form a group without the lost ranks, so that they can save.
  void form_group(const std::set<int>& alive, int generation);

 private:
  void begin(int generation, std::set<int> lost, std::set<int> alive, std::chrono::steady_clock::time_point lost_at);

  RoundWorkers& workers_;
  const JudgedRound& round_;
  StandbyRules& standbys_;
  AgentTurn& turn_;

  std::optional<PendingRegroup> pending_;
  std::set<int> unstarted_;      // lost ranks whose replacements have not been started
  std::set<int> group_members_;  // ranks that have joined the first group of a round with new workers
  // Time from the start of the last round with new workers until its group formed.
  std::chrono::steady_clock::duration startup_time_{};
};

}  // namespace ddprun
