// Handles late nodes, which still answer, but whose workers do not end after a round. For example, a worker that is stuck in
// the kernel cannot be killed. Without this class, a late node would block all other nodes without a limit. The coordinator
// registers each node for which it waits. At the deadlines, this class returns the overdue nodes. The code is pure: no I/O, no
// clock.
//
//     awaited -- a while --> logged -- ready_timeout --> gets no more grants -- a lease --> lost
//
// A grant is the time for which workers may run. It is at most one lease, so the last grant of a late node has ended before the
// other nodes continue without that node. The late node may reconnect and vote, but the coordinator does not wait for its old
// workers again.
//
// This class stores when the wait for each node started, and for which nodes the coordinator no longer waits.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class LateNodes {
 public:
  explicit LateNodes(const CoordinatorSettings& settings);

  // Starts the deadlines for a node whose workers must end. The call has no effect if the coordinator already waits for this
  // node.
  void await(const Peer& peer, Time now);
  std::optional<Time> next_deadline() const;

  // ---- overdue nodes; each is returned once ----

  // Returns a message that names the nodes for which the coordinator has waited so long that users should see it. The result is
  // empty if no further node has reached that time.
  std::string take_message(Peers& peers, Time now);
  // If the workers of a node have not ended within ready_timeout, marks the node as late. Late nodes get no more time for
  // their workers.
  void give_up_due(Peers& peers, Time now);
  // Returns the late nodes whose workers can no longer run under a grant. The caller must mark these nodes as lost.
  std::vector<NodeId> take_lost(Peers& peers, Time now);
  // Describes why a late node counts as lost, for messages.
  std::string why() const;

  // ---- nodes that come back ----

  // Returns true if the reconnected node still has old workers for which the coordinator no longer waits.
  bool still_has_workers(const Peer& peer, Time now);
  void forgive(Peer& peer);

 private:
  struct Awaited {
    Time since;
    NodeId node;
  };
  struct Stage {
    nanoseconds after{};
    std::deque<Awaited> nodes{};  // sorted by start of the wait, earliest first
  };

  void remember(const Hello& hello);
  std::vector<NodeId> take(Stage& stage, const Peers& peers, Time now);

  milliseconds timeout_;
  Stage logged_;
  Stage given_up_;
  Stage lost_;
  // the late nodes for which the coordinator no longer waits, each with its incarnation (start time of its agent)
  std::unordered_map<NodeId, std::uint64_t, HashNodeId> known_;
};

}  // namespace ddprun::rendezvous
