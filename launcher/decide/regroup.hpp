// One regroup: a worker was lost, the others keep their processes and their state, another one is started in its place, and a
// new group is made. This is the bookkeeping of who has answered; agent_state.cpp asks it what a further loss means and when
// everybody is together. Pure, and of one node: ranks are local.
//
//     lost -> the others are told, a new worker starts -> each says that it has left the old group, and what state it holds
//          -> all meet under the new generation -> each says that it continues
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

  // `lost` are gone; `alive` were there before and stay.
  PendingRegroup(int generation, std::set<int> lost, std::set<int> alive, Clock::time_point begun)
      : generation_(generation), replaced_(std::move(lost)), awaited_(std::move(alive)), begun_(begun) {
    for (const int rank : replaced_) check(!awaited_.contains(rank), "a rank is lost and stays");
  }

  int generation() const { return generation_; }
  Clock::time_point begun() const { return begun_; }

  // Another rank is lost. If it had not answered yet, the same event has hit it: it is replaced as well, and no other rank need
  // be told. Otherwise it may be in the new group already, so another group is needed: returns false.
  bool also_lost(int rank) {
    if (awaited_.erase(rank) == 0) return false;
    replaced_.insert(rank);
    return true;
  }

  // RegroupReady: the rank has left the old group and holds the state after that many steps (-1: none).
  void ready(int rank, int generation, std::int64_t step) {
    if (generation == generation_ && awaited_.erase(rank) > 0) kept_[rank] = step;
  }
  // GroupFormed: the rank is in the new group. True when all of `world` are.
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
  std::set<int> awaited_;             // told, and not answered yet
  std::map<int, std::int64_t> kept_;  // answered, with the step of the state that it holds
  std::set<int> joined_;
  std::int64_t step_ = -1;
  Clock::time_point begun_;
};

}  // namespace ddprun
