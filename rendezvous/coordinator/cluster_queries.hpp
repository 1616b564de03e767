// Handles a query about the whole job (ClusterQuery), for example from `ddprun status`. The coordinator forwards the query to
// one node, or to every connected node, including its own. It forwards each node's answer to the node that sent the query. It
// does not store queries or answers, so they cannot exhaust its memory. coordinator.hpp calls these functions. The code is
// pure: no I/O, no clock.
#pragma once

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

inline void forward_query(const Peer& requester, const ClusterQuery& query, const Peers& peers, Outbox& outbox) {
  const NodeQuery node_query{requester.hello.node, query.number, query.max_bytes, query.text};
  if (query.to != NodeId{}) {
    const Peer* const one = peers.find(query.to);
    if (one != nullptr && one->connected()) return outbox.send(*one, node_query);
    return outbox.send(requester, JobAnswer{query.number, static_cast<std::int32_t>(peers.connected()), query.to, {}});
  }
  for (const Peer* peer : peers.by_age()) {
    if (peer->connected()) outbox.send(*peer, node_query);
  }
}

// Forwards the answer to the node that has sent the query. Drops the answer if that node is no longer connected.
inline void forward_answer(const Peer& from, const NodeAnswer& answer, const Peers& peers, Outbox& outbox) {
  const Peer* const requester = peers.find(answer.requester);
  if (requester == nullptr || !requester->connected()) return;
  outbox.send(*requester, JobAnswer{answer.number, static_cast<std::int32_t>(peers.connected()), from.hello.node, answer.text});
}

}  // namespace ddprun::rendezvous
