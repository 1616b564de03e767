// Defines a majority (quorum) of a round's nodes. Two majorities of one round always share a node. Terms, leases and elections
// depend on this property.
//
// Note: two rounds until committed. A new round may have different nodes, so a majority of it may share no node with a
// majority of the previous round. Suppose the coordinator dies while only some nodes have received the Release, which starts
// the new round. Then some nodes could elect a coordinator by the old round, and other nodes could elect another coordinator
// by the new round. So a round is *committed* only when a majority of it and a majority of the previous round have installed
// it. Until then, a coordinator needs both majorities. An elected candidate continues with the newest round that any of its
// voters has installed. Every majority contains a node that has installed the newest committed round, so every new coordinator
// learns of that round. (The idea is the joint consensus of Raft.)
//
// Note: inherited rounds are released again. Suppose a coordinator inherits an uncommitted round. Another coordinator, whose
// term is between the two terms, may have replaced that round. If the new coordinator counted the nodes that installed the old
// release, it could commit the replaced round (Raft paper, section 5.4.2). So it releases the round again under its own term,
// with the same nodes and ranks, and counts only the nodes that installed the new release.
//
// Note: the coordinator records the roster. A release does not list the nodes of the round, so a node that did not receive the
// release has no rank. If the coordinator dies while it sends the release, the nodes that have their rank may be fewer than a
// majority. So the coordinator records all nodes with their ranks (Roster) before it sends the release. When the coordinator
// is restarted, it can count all these nodes in an election.
#pragma once

#include <cstdint>
#include <vector>

#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// The nodes of a round by group rank. The round's coordinator records this list before it starts the round.
struct Roster {
  RoundId origin{};  // identifies the round: its Config::origin()
  std::vector<NodeId> nodes{};
  bool operator==(const Roster&) const = default;
};

// Note: an arbiter is a third voter in a round of two nodes. Without an arbiter, the node with group rank 0 alone is a
// majority, and the other node alone is not. An arbiter has rank 2, and two of the three voters are a majority. The arbiter
// gives its vote to one node permanently, so only this node can be a majority without the other node. So two majorities still
// share a node.

// The node id of an arbiter. No real node has this id.
inline constexpr NodeId kArbiterId{0xff, 'a', 'r', 'b', 'i', 't', 'e', 'r', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

class Tally {
 public:
  explicit Tally(std::int32_t nodes = 0) : nodes_(nodes) {}
  explicit Tally(const Config& round) : nodes_(round.voters()), arbitrated_(round.has_arbiter()) {}

  // Counts the vote of the node with group rank `rank`. A rank outside the round, such as -1, has no effect. The caller adds
  // each node once.
  void add(std::int32_t rank) { change(rank, 1); }
  // Removes the vote of a rank that was added before.
  void remove(std::int32_t rank) { change(rank, -1); }
  bool enough(const Rules& rules = {}) const {
    if (nodes_ == 0) return true;  // there is no round, so no vote is needed
    if (!rules.majority_needed) return count_ > 0;
    if (arbitrated_ && !rules.rank_0_needs_arbiter && lowest_ > 0) return true;
    const std::int64_t twice = 2 * std::int64_t{count_};
    return twice > nodes_ || (twice == nodes_ && (lowest_ > 0 || !rules.half_needs_rank_0));
  }
  std::int32_t count() const { return count_; }

 private:
  void change(std::int32_t rank, std::int32_t by) {
    if (rank < 0 || rank >= nodes_) return;
    count_ += by;
    if (rank == 0) lowest_ += by;
  }

  std::int32_t nodes_;
  bool arbitrated_ = false;
  std::int32_t count_ = 0;
  std::int32_t lowest_ = 0;
};

// Returns true if the other nodes of the round form a majority without this node.
inline bool others_are_enough(const Config& round, const Rules& rules) {
  Tally others(round);
  for (std::int32_t rank = 0; rank < round.nodes; ++rank) others.add(rank == round.rank ? -1 : rank);
  return others.enough(rules);
}

}  // namespace ddprun::rendezvous
