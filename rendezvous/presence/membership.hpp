// The job's members: the nodes of the current round and, until that is committed, of the previous round (Raft's joint
// consensus; quorum.hpp explains why both are needed). The coordinator reports which node has installed which round. Pure.
//
// This class owns both rounds, how many nodes have installed the current one, and the ranks of a round that this node released
// in an earlier term. It is the only writer of Peer's ranks and `installed`.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

// The arbiter of a new round, if it has one, and the node id under which the arbiter stores the round.
struct Arbitrated {
  Arbiter arbiter = Arbiter::kNone;
  NodeId founder{};
};

class Membership {
 public:
  Membership(const Authority& authority, const Rules& rules);

  const Config& current() const { return current_; }
  const Config& previous() const { return previous_; }  // it exists until current() is committed
  bool committed() const { return committed_; }

  // Adopts the ranks from a node's Hello.
  void recall_ranks(Peer& peer, const Hello& hello);
  // Begins a round with the nodes of `by_rank`; nullptr: no node has that rank. The current round becomes the previous one.
  void begin_round(std::uint64_t term, const std::vector<Peer*>& by_rank, const Arbitrated& arbitrated, Peers& peers);
  // The node has installed the current round, or has left and does not vote. Returns true if this commits the round.
  bool install(Peer& peer, Peers& peers);
  // The arbiter of the round with that origin() has voted for this node. Has no effect for other rounds than the two here.
  // Returns true like install().
  bool arbiter_votes(const RoundId& origin, Peers& peers);
  // True if the node with this state already knew that the current round is committed.
  bool was_committed_for(const PersistentState& told) const;
  void forget_previous(Peers& peers);

 private:
  bool check_committed(Peers& peers);

  Rules rules_;
  Config current_;  // rank: that of this node
  Config previous_;
  bool committed_ = true;
  std::int64_t last_round_ = -1;  // the largest round number known to any connected node
  Tally installed_current_;
  Tally installed_previous_;
  std::unordered_map<NodeId, std::int32_t, HashNodeId> inherited_ranks_;
};

}  // namespace ddprun::rendezvous
