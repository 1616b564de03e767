// A coordinator whose own node leaves the job in order: when it may hand over, and to whom. After a handover the others elect
// at once, so nothing that this coordinator has granted may run any more by then: every node's workers have ended, or a lease
// has passed since a node that is lost with its workers was heard. The coordinator asks when its own node has left. Pure.
//
// It owns whether its node has left, and from when on workers of lost nodes are gone.
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

  // Whether those who would stay can choose another coordinator, with the vote that this node leaves to one of them.
  bool possible(const Leaving& leaving, const Membership& membership, const Peers& peers) const;

  // The node is lost while its workers may run: they have grants that it may use up.
  void lost_with_workers(const Peer& peer) { quiet_at_ = std::max(quiet_at_, peer.heard + patience_); }
  void begin() { left_ = true; }
  bool begun() const { return left_; }
  // Its own node has left, nobody's workers are awaited, and those of lost nodes are gone.
  bool may_happen(const Membership& membership, const Peers& peers, Time now) const;
  // When that may be so without anything else happening.
  std::optional<Time> deadline(Time now) const { return left_ && quiet_at_ > now ? std::optional(quiet_at_) : std::nullopt; }

  // Who is to lead: of the nodes that are here, the one with the lowest rank. Nothing: nobody is left who could.
  std::optional<Successor> successor(const Peers& peers) const;
  // Of this node, with its ranks.
  Standing standing(std::uint64_t term, const Membership& membership, const Peers& peers) const;

 private:
  NodeId self_;
  nanoseconds patience_;
  Rules rules_;
  bool left_ = false;
  Time quiet_at_{};
};

}  // namespace ddprun::rendezvous
