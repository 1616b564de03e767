// What a majority of a round's nodes is. Two majorities of one round always share a node: terms, leases and elections all rest
// on that.
//
// Note: two rounds until committed. A release is a change of what a majority is, and the coordinator may die while some nodes
// have it and others do not. So a round counts as *committed* once a majority of it and a majority of the round before have
// installed it; until then, leading takes a majority of both. A candidate takes over the newest round that any of its voters
// knows. So a coordinator elected with the vote of a node that installed the round cannot overlook it. (The idea is Raft's
// joint consensus.)
//
// Note: inherited rounds are released again. A successor may inherit a round that is not committed, while another one, of a
// term in between, had given that round up. Counting the nodes that installed the old release could then commit a round that
// another coordinator has replaced (figure 8 of the Raft paper). So the successor releases the round again under its own term,
// with the same nodes and ranks, and counts the nodes that installed this release.
//
// Note: a member list at the coordinator. A release names few nodes, so a node that it never reached does not know that it is
// part of the round, and if its coordinator dies just then too few may know. The coordinator remembers all of them (Roster)
// before the release goes out; when it is back, it can count them.
#pragma once

#include <cstdint>
#include <vector>

#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// The nodes of a round by group rank, as its coordinator remembers them. Only the coordinator knows of a node that the release
// never reached that it is part of the round. So it can lead that round again when it comes back, whichever nodes its release
// had reached.
struct Roster {
  RoundId origin{};  // Config::origin()
  std::vector<NodeId> nodes{};
  bool operator==(const Roster&) const = default;
};

// Note: an arbiter is a third voter. Of two nodes the one with group rank 0 is a majority by itself, and the other never is. An
// arbiter is a third voter with the rank after theirs, and two of the three are a majority. It gives its vote to one node for
// ever, so two majorities still share a node: both nodes are in one of them, or the node with the arbiter's vote is in each.

// The arbiter's identity among the nodes; no node has it.
inline constexpr NodeId kArbiterId{0xff, 'a', 'r', 'b', 'i', 't', 'e', 'r', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

class Tally {
 public:
  explicit Tally(std::int32_t nodes = 0) : nodes_(nodes) {}
  explicit Tally(const Config& round) : nodes_(round.voters()), arbitrated_(round.has_arbiter()) {}

  // Counts the node with that group rank, unless it is not part of the round (-1). The caller adds each node once.
  void add(std::int32_t rank) {
    if (rank < 0 || rank >= nodes_) return;
    ++count_;
    if (rank == 0) ++lowest_;
  }
  // Removes a rank that was added.
  void remove(std::int32_t rank) {
    if (rank < 0 || rank >= nodes_) return;
    --count_;
    if (rank == 0) --lowest_;
  }
  bool enough(const Rules& rules = {}) const {
    if (nodes_ == 0) return true;  // without a round nobody has to be asked
    if (!rules.majority_needed) return count_ > 0;
    if (arbitrated_ && !rules.rank_0_asks_the_arbiter && lowest_ > 0) return true;
    const std::int64_t twice = 2 * std::int64_t{count_};
    return twice > nodes_ || (twice == nodes_ && (lowest_ > 0 || !rules.half_needs_rank_0));
  }
  std::int32_t count() const { return count_; }

 private:
  std::int32_t nodes_;
  bool arbitrated_ = false;
  std::int32_t count_ = 0;
  std::int32_t lowest_ = 0;
};

// Whether the other nodes of the round are a majority of it without this node.
inline bool others_are_enough(const Config& round, const Rules& rules) {
  Tally others(round);
  for (std::int32_t rank = 0; rank < round.nodes; ++rank) others.add(rank == round.rank ? -1 : rank);
  return others.enough(rules);
}

}  // namespace ddprun::rendezvous
