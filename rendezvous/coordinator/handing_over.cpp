// Implementation of handing_over.hpp.
#include "rendezvous/coordinator/handing_over.hpp"

namespace ddprun::rendezvous {

bool HandingOver::possible(const Leaving& leaving, const Membership& membership, const Peers& peers) const {
  Tally of_current(membership.current().nodes);
  Tally of_previous(membership.previous().nodes);
  bool somebody_can_lead = false;
  for (const auto& [id, peer] : peers.all()) {
    const bool stays = peer.here() && !peer.departed && !leaving.contains(id);
    if (!stays && id != self_) continue;
    of_current.add(peer.rank);
    of_previous.add(peer.previous_rank);
    somebody_can_lead = somebody_can_lead || (id != self_ && peer.rank >= 0 && peer.hello.listens.port != 0);
  }
  return somebody_can_lead && of_current.enough(rules_) && of_previous.enough(rules_);
}

bool HandingOver::may_happen(const Membership& membership, const Peers& peers, Time now) const {
  if (!left_ || !rules_.handovers_wait) return left_;
  return peers.awaited() == 0 && membership.committed() && quiet_at_ <= now;
}

std::optional<Successor> HandingOver::successor(const Peers& peers) const {
  const Peer* first = nullptr;
  for (const Peer* peer : peers.by_age()) {
    const bool able = peer->here() && peer->rank >= 0 && !peer->straggles && peer->hello.listens.port != 0;
    if (peer->hello.node == self_ || !able) continue;
    if (first == nullptr || peer->rank < first->rank) first = peer;
  }
  if (first == nullptr) return std::nullopt;
  return Successor{.group_rank = first->rank, .node = first->hello.node, .address = first->hello.listens};
}

PersistentState HandingOver::state(std::uint64_t term, const Membership& membership, const Peers& peers) const {
  const Peer* const self = peers.find(self_);
  PersistentState state{
      .promised_term = term, .current = membership.current(), .previous = membership.previous(), .budget = {}};
  state.current.rank = self == nullptr ? -1 : self->rank;
  state.previous.rank = self == nullptr ? -1 : self->previous_rank;
  return state;
}

}  // namespace ddprun::rendezvous
