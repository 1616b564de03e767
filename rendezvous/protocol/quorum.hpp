// Defines a majority of a round's nodes. Two majorities of one round always share a node. Terms, leases and elections rely on
// that.
//
// Note: two rounds until committed. A release changes what a majority is, and the coordinator may die while only some nodes
// have it. So a round counts as *committed* only when a majority of it and a majority of the previous round have installed it.
// Until then, leading takes a majority of both. A candidate takes over the newest round that any of its voters knows. So a
// coordinator elected with the vote of a node that installed the round cannot overlook it. (The idea is Raft's joint
// consensus.)
//
// Note: inherited rounds are released again. A successor may inherit an uncommitted round that another coordinator, with a term
// in between, had abandoned. If it counted the nodes that installed the old release, it could commit a round that has been
// replaced (figure 8 of the Raft paper). So the successor releases the round again under its own term, with the same nodes and
// ranks, and counts the nodes that installed this release.
//
// Note: a member list at the coordinator. A release names few nodes, so a node that it never reached does not know that it is
// part of the round. If the coordinator dies at that moment, too few nodes may know. So the coordinator records all of them
// (Roster) before it sends the release. After its return it can count them.
#pragma once

#include <cstdint>
#include <vector>

#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// The nodes of a round by group rank, as recorded by its coordinator. If the release never reached a node, only the coordinator
// knows that the node is part of the round. So after its return it can lead that round again, no matter which nodes the release
// had reached.
struct Roster {
  RoundId origin{};  // Config::origin()
  std::vector<NodeId> nodes{};
  bool operator==(const Roster&) const = default;
};

// Note: an arbiter is a third voter. Without an arbiter, the node with group rank 0 is a majority of two by itself, and the
// other node never is. An arbiter has the rank after theirs, and two of the three are a majority. It gives its vote to one node
// permanently. So two majorities still share a node: either one of them contains both nodes, or both contain the node with the
// arbiter's vote.

// The arbiter's node id; no real node has it.
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
    if (nodes_ == 0) return true;  // without a round, no vote is needed
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

// True if the other nodes of the round are a majority without this node.
inline bool others_are_enough(const Config& round, const Rules& rules) {
  Tally others(round);
  for (std::int32_t rank = 0; rank < round.nodes; ++rank) others.add(rank == round.rank ? -1 : rank);
  return others.enough(rules);
}

}  // namespace ddprun::rendezvous
