// The voting members of the job (a configuration in Raft). The voting members are the nodes of the current round. Until that
// round is committed, the nodes of the previous round are voting members too (joint consensus in Raft; quorum.hpp explains the
// reason). The coordinator calls install() for each node that has installed (recorded) the current round. The code is pure: no
// I/O, no clock.
//
// This class owns both rounds, and counts the nodes that have installed the current round. If this node released the current
// round as an earlier coordinator, the class also owns the ranks of that round. The class sets the ranks and `installed` in
// each Peer.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

// The arbiter of a new two-node round, and the id of the node that starts the round. The arbiter stores its vote under that id.
struct Arbitrated {
  Arbiter arbiter = Arbiter::kNone;
  NodeId founder{};
};

class Membership {
 public:
  Membership(const Authority& authority, const Rules& rules);

  const Config& current() const { return current_; }
  // the previous round; its exists() is false after the current round is committed
  const Config& previous() const { return previous_; }
  bool committed() const { return committed_; }

  // Sets the node's ranks in the current and the previous round. The ranks come from the node's Hello, or from the roster that
  // this node recorded.
  void recall_ranks(Peer& peer, const Hello& hello);
  // Starts a round in which by_rank[i] gets group rank i. A nullptr means that no node has that rank. The current round becomes
  // the previous round.
  void begin_round(std::uint64_t term, const std::vector<Peer*>& by_rank, const Arbitrated& arbitrated, Peers& peers);
  // Call this when the node has installed the current round, or has left and does not vote again. Returns true if this commits
  // the round.
  bool install(Peer& peer, Peers& peers);
  // Call this when the arbiter has voted for this node in the round with that origin(). The call has no effect unless that
  // round is the current or the previous round. Returns true if this commits the current round.
  bool arbiter_votes(const RoundId& origin, Peers& peers);
  // Returns true if `state`, reported by another node, shows that the current round is committed.
  bool was_committed_for(const PersistentState& state) const;
  void forget_previous(Peers& peers);

 private:
  bool check_committed(Peers& peers);

  Rules rules_;
  Config current_;  // the field `rank` contains the group rank of this node
  Config previous_;
  bool committed_ = true;
  std::int64_t last_round_ = -1;  // the largest round number that any connected node has reported
  Tally installed_current_;
  Tally installed_previous_;
  std::unordered_map<NodeId, std::int32_t, HashNodeId> inherited_ranks_;
};

}  // namespace ddprun::rendezvous
