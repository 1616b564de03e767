// Bookkeeping of one regroup. A worker was lost, and the other workers keep their processes and their state. A replacement
// starts, and all of them form a new group. PendingRegroup records which ranks have answered. agent_state.cpp uses it to handle
// a further loss and to find out when the group is complete. Pure. It covers one node, so ranks are local.
//
//     lost -> the others get Regroup, a new worker starts -> RegroupReady: a rank has left the old group; the step of its state
//          -> all ranks meet under the new generation -> GroupFormed: a rank is in the new group
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/base/check.hpp"

namespace ddprun {

class PendingRegroup {
 public:
  using Clock = std::chrono::steady_clock;

  // `lost`: ranks whose workers have ended. `alive`: ranks whose workers stay.
  PendingRegroup(int generation, std::set<int> lost, std::set<int> alive, Clock::time_point begun)
      : generation_(generation), replaced_(std::move(lost)), awaited_(std::move(alive)), begun_(begun) {
    for (const int rank : replaced_) check(!awaited_.contains(rank), "a rank is lost and stays");
  }

  int generation() const { return generation_; }
  Clock::time_point begun() const { return begun_; }

  // Another rank is lost. If it had not answered yet, it counts to the same loss: it is replaced as well, and the other ranks
  // need no new message. Otherwise it may already be in the new group, so another group is needed: returns false.
  bool also_lost(int rank) {
    if (awaited_.erase(rank) == 0) return false;
    replaced_.insert(rank);
    return true;
  }

  // RegroupReady: the rank has left the old group and holds the state after `step` steps (-1: no state).
  void ready(int rank, int generation, std::int64_t step) {
    if (generation == generation_ && awaited_.erase(rank) > 0) kept_[rank] = step;
  }
  // GroupFormed: the rank is in the new group. True when all `world` ranks are in it.
  bool joined(int rank, int generation, std::int64_t step, int world) {
    if (generation != generation_) return false;
    joined_.insert(rank);
    step_ = step;
    return static_cast<int>(joined_.size()) == world;
  }

  // Ranks that continue with a new process.
  const std::set<int>& replaced() const { return replaced_; }
  // Ranks that held state. All continue from the step of the most advanced one.
  std::vector<int> keepers() const {
    std::vector<int> ranks;
    for (const auto& [rank, step] : kept_) {
      if (step >= 0) ranks.push_back(rank);
    }
    return ranks;
  }
  std::int64_t step() const { return step_; }
  // Ranks that stay and hold state, or have not answered yet.
  std::set<int> survivors() const {
    std::set<int> ranks = awaited_;
    for (const int rank : keepers()) ranks.insert(rank);
    return ranks;
  }

 private:
  int generation_;
  std::set<int> replaced_;
  std::set<int> awaited_;             // ranks that have not answered yet
  std::map<int, std::int64_t> kept_;  // ranks that have answered, with the step of their state
  std::set<int> joined_;
  std::int64_t step_ = -1;
  Clock::time_point begun_;
};

}  // namespace ddprun
