// Leadership transfer (Raft): a coordinator whose own node leaves the job makes another node the coordinator. This class
// decides when the coordinator may transfer the leadership, and to which node. The code is pure: no I/O, no clock.
//
// After the transfer the other nodes elect a coordinator immediately, without waiting for the end of the lease. So the transfer
// must wait until no worker can run any more under a grant (permission) of this coordinator. Two conditions ensure this. First,
// all connected nodes have ended their workers. Second, if a node was lost while it had workers, one lease has passed since its
// last message.
//
// This class stores whether the coordinator's node has left, and the time after which no worker of a lost node can be running.
#pragma once

#include <algorithm>
#include <optional>

#include "rendezvous/coordinator/drain.hpp"
#include "rendezvous/membership/membership.hpp"
#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class LeadershipTransfer {
 public:
  LeadershipTransfer(const CoordinatorSettings& settings, const Membership& membership, const Peers& peers)
      : membership_(membership), peers_(peers), settings_(settings) {}

  // Returns true if another coordinator can be elected after the nodes of `drain` have left. The voters are the remaining nodes
  // and this node.
  bool possible(const Drain& drain) const;

  // Call this when a node is lost while its workers may still be running. Workers of a node that has lost contact run until
  // their grant ends.
  void lost_with_workers(const Peer& peer) {
    workers_gone_at_ = std::max(workers_gone_at_, peer.last_contact + part_of(settings_.lease, settings_.rules.give_up));
  }
  void begin() { left_ = true; }
  bool has_started() const { return left_; }
  // Returns true if three conditions hold: the coordinator's node has left, the round is committed, and no node, even a lost
  // node, can have running workers.
  bool is_ready_to_transfer(Time now) const;
  // Returns the time at which is_ready_to_transfer() may become true without a further event. Returns nullopt if an event is
  // needed.
  std::optional<Time> deadline(Time now) const { return left_ ? if_after(workers_gone_at_, now) : std::nullopt; }

  // Returns the node that should lead next: the connected node with the lowest rank that accepts connections and is not late.
  // Returns nullopt if no remaining node qualifies.
  std::optional<Successor> successor() const;
  // Returns the persistent state of this node for TransferLeadership: the term, the current and the previous round, and this
  // node's ranks in them.
  PersistentState state(std::uint64_t term) const;

 private:
  const Membership& membership_;
  const Peers& peers_;
  const CoordinatorSettings& settings_;
  bool left_ = false;
  Time workers_gone_at_{};
};

}  // namespace ddprun::rendezvous
