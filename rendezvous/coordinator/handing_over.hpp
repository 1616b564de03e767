// Leadership transfer (Raft) for the case that the coordinator's own node leaves the job: when it may hand over, and to which
// node. After a handover the others elect immediately. So by then no worker may run under this coordinator's grants. Either
// each node's workers have ended, or a lease has passed since the last message of a lost node with workers. The coordinator
// checks this after its own node has left. Pure.
//
// This class owns whether its node has left, and when the workers of lost nodes are certainly gone.
#pragma once

#include <algorithm>
#include <optional>

#include "rendezvous/coordinator/leaving.hpp"
#include "rendezvous/presence/membership.hpp"
#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class HandingOver {
 public:
  explicit HandingOver(const CoordinatorSettings& settings)
      : self_(settings.self), patience_(part_of(settings.lease, settings.rules.give_up)), rules_(settings.rules) {}

  // True if the remaining nodes can elect another coordinator. One of them gets the vote of this node.
  bool possible(const Leaving& leaving, const Membership& membership, const Peers& peers) const;

  // A node was lost while its workers may still run. They can run until their grants end.
  void lost_with_workers(const Peer& peer) { quiet_at_ = std::max(quiet_at_, peer.heard + patience_); }
  void begin() { left_ = true; }
  bool begun() const { return left_; }
  // True if its own node has left, no node's workers are awaited, and the workers of lost nodes are gone.
  bool may_happen(const Membership& membership, const Peers& peers, Time now) const;
  // The time at which may_happen() may become true without any further event.
  std::optional<Time> deadline(Time now) const { return left_ && quiet_at_ > now ? std::optional(quiet_at_) : std::nullopt; }

  // The node that should lead: the connected node with the lowest rank. nullopt if no remaining node can lead.
  std::optional<Successor> successor(const Peers& peers) const;
  // The state that this node sends with the handover, including its ranks.
  PersistentState state(std::uint64_t term, const Membership& membership, const Peers& peers) const;

 private:
  NodeId self_;
  nanoseconds patience_;
  Rules rules_;
  bool left_ = false;
  Time quiet_at_{};
};

}  // namespace ddprun::rendezvous
