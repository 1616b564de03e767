// What a coordinator does when somebody on a node asks about the whole job (JobQuestion): it puts the question to every node
// that is here, its own included, or to the one that it is for, and passes each answer on to the node that asked. It remembers
// nothing, so nobody can make it keep anything. Pure; coordinator.hpp calls it.
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

// A node that has left meanwhile gets no answer.
inline void pass_on(const Peer& from, const NodeAnswer& answer, const Peers& peers, Outbox& outbox) {
  const Peer* const asker = peers.find(answer.asker);
  if (asker == nullptr || !asker->here()) return;
  outbox.send(*asker, JobAnswer{answer.number, static_cast<std::int32_t>(peers.connected()), from.hello.node, answer.text});
}

}  // namespace ddprun::rendezvous
