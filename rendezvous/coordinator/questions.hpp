// Handles a query about the whole job (JobQuestion), for example from `ddprun status`. The coordinator forwards the query to
// one node or to every connected node, including its own. It passes each answer to the node that asked. It stores nothing, so
// queries cannot use up its memory. Pure; coordinator.hpp calls it.
#pragma once

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

inline void ask_nodes(const Peer& asker, const JobQuestion& question, const Peers& peers, Outbox& outbox) {
  const NodeQuestion asked{asker.hello.node, question.number, question.most_bytes, question.text};
  if (question.to != NodeId{}) {
    const Peer* const one = peers.find(question.to);
    if (one != nullptr && one->here()) return outbox.send(*one, asked);
    return outbox.send(asker, JobAnswer{question.number, static_cast<std::int32_t>(peers.connected()), question.to, {}});
  }
  for (const Peer* peer : peers.by_age()) {
    if (peer->here()) outbox.send(*peer, asked);
  }
}

// If the node that asked has left meanwhile, the answer is dropped.
inline void pass_on(const Peer& from, const NodeAnswer& answer, const Peers& peers, Outbox& outbox) {
  const Peer* const asker = peers.find(answer.asker);
  if (asker == nullptr || !asker->here()) return;
  outbox.send(*asker, JobAnswer{answer.number, static_cast<std::int32_t>(peers.connected()), from.hello.node, answer.text});
}

}  // namespace ddprun::rendezvous
