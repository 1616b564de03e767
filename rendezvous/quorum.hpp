// What a majority of a round's nodes is. Two majorities of one round always share a node; that is all that terms, leases and
// succession rest on.
//
// Note: two rounds until committed. A release is a change of what a majority is, and the coordinator may die while some nodes
// have it and others do not. So a round counts as *committed* once a majority of it and a majority of the round before have
// installed it; until then, leading takes a majority of both. Nodes that installed it don't vote for a candidate that doesn't
// know it, so the older round's majority is out of reach from then on. (The idea is Raft's joint consensus.)
#pragma once

#include <cstdint>

#include "rendezvous/rules.hpp"

namespace ddprun::rendezvous {

class Tally {
 public:
  explicit Tally(std::int32_t nodes = 0) : nodes_(nodes) {}

  // A node of that group rank counts; nodes that are not part of the round (-1) don't. The caller adds each node once.
  void add(std::int32_t rank) {
    if (rank < 0 || rank >= nodes_) return;
    ++count_;
    if (rank == 0) has_lowest_ = true;
  }
  bool enough(const Rules& rules = {}) const {
    if (nodes_ == 0) return true;  // no round: nobody to be asked
    if (!rules.majority_needed) return count_ > 0;
    const std::int64_t twice = 2 * std::int64_t{count_};
    return twice > nodes_ || (twice == nodes_ && (has_lowest_ || !rules.half_needs_rank_0));
  }
  std::int32_t count() const { return count_; }

 private:
  std::int32_t nodes_;
  std::int32_t count_ = 0;
  bool has_lowest_ = false;
};

}  // namespace ddprun::rendezvous
