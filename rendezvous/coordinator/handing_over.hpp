// Leadership transfer (Raft), when the coordinator's own node leaves the job: when it may hand over, and to which node. After a
// handover the others elect at once, so by then no worker may run under this coordinator's grants: each node's workers have
// ended, or a lease has passed since a lost node with workers was last heard. The coordinator asks when its own node has left.
// Pure.
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

  // Whether the nodes that would stay can elect another coordinator, with the vote that this node leaves to one of them.
  bool possible(const Leaving& leaving, const Membership& membership, const Peers& peers) const;

  // A node was lost while its workers may run: they may use up their grants.
  void lost_with_workers(const Peer& peer) { quiet_at_ = std::max(quiet_at_, peer.heard + patience_); }
  void begin() { left_ = true; }
  bool begun() const { return left_; }
  // Its own node has left, no node's workers are awaited, and the workers of lost nodes are gone.
  bool may_happen(const Membership& membership, const Peers& peers, Time now) const;
  // When that may be true without any further event.
  std::optional<Time> deadline(Time now) const { return left_ && quiet_at_ > now ? std::optional(quiet_at_) : std::nullopt; }

  // The node that should lead: of the connected nodes, the one with the lowest rank. Nothing: no node is left that could.
  std::optional<Successor> successor(const Peers& peers) const;
  // This node's state for the handover, with its ranks.
  PersistentState state(std::uint64_t term, const Membership& membership, const Peers& peers) const;

 private:
  NodeId self_;
  nanoseconds patience_;
  Rules rules_;
  bool left_ = false;
  Time quiet_at_{};
};

}  // namespace ddprun::rendezvous
