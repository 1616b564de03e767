// Which nodes are the job's members: those of the current round, and those of the round before until the current one is
// committed (Raft's joint consensus; quorum.hpp says why it takes both). The coordinator tells it which node has installed
// which round. Pure.
//
// This class owns both rounds, how many nodes have installed the current one, and the ranks of a round that this node released
// in an earlier term. Of a Peer it alone writes the ranks and `installed`.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

// The arbiter of a round that begins, if it has one, and the node under whose identity that arbiter knows the round.
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

  // Takes over what a node's Hello says about its ranks.
  void recall_ranks(Peer& peer, const Hello& hello);
  // Begins a round with the nodes of `by_rank`; nullptr: nobody has that rank. The current round becomes the previous one.
  void begin_round(std::uint64_t term, const std::vector<Peer*>& by_rank, const Arbitrated& arbitrated, Peers& peers);
  // The node has installed the current round, or votes no more. True when this was the last node that was needed: the round is
  // committed now.
  bool install(Peer& peer, Peers& peers);
  // The arbiter of the round with that origin() has given its vote to this node; nothing happens when it is neither of the two
  // rounds here. True as for install().
  bool arbiter_votes(const RoundId& origin, Peers& peers);
  // The node that told this knew already that the current round is committed.
  bool was_committed_for(const PersistentState& told) const;
  void forget_previous(Peers& peers);

 private:
  bool check_committed(Peers& peers);

  Rules rules_;
  Config current_;  // rank: this node's
  Config previous_;
  bool committed_ = true;
  std::int64_t last_round_ = -1;  // the largest number that any node here has heard of
  Tally installed_current_;
  Tally installed_previous_;
  std::unordered_map<NodeId, std::int32_t, HashNodeId> inherited_ranks_;
};

}  // namespace ddprun::rendezvous
