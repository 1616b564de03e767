#include "rendezvous/coordinator/leadership_transfer.hpp"

namespace ddprun::rendezvous {

bool LeadershipTransfer::possible(const Drain& drain) const {
  Tally current_tally(membership_.current().nodes);
  Tally previous_tally(membership_.previous().nodes);
  bool any_can_lead = false;
  for (const auto& [id, peer] : peers_.all()) {
    const bool stays = peer.connected() && !peer.departed && !drain.contains(id);
    if (!stays && id != settings_.self) continue;
    current_tally.add(peer.rank);
    previous_tally.add(peer.previous_rank);
    any_can_lead = any_can_lead || (id != settings_.self && peer.rank >= 0 && peer.hello.listens.port != 0);
  }
  return any_can_lead && current_tally.enough(settings_.rules) && previous_tally.enough(settings_.rules);
}

bool LeadershipTransfer::is_ready_to_transfer(Time now) const {
  if (!left_ || !settings_.rules.transfers_wait_for_workers) return left_;
  return peers_.awaited() == 0 && membership_.committed() && workers_gone_at_ <= now;
}

std::optional<Successor> LeadershipTransfer::successor() const {
  const Peer* first = nullptr;
  for (const Peer* peer : peers_.by_age()) {
    const bool able = peer->connected() && peer->rank >= 0 && !peer->is_late && peer->hello.listens.port != 0;
    if (peer->hello.node == settings_.self || !able) continue;
    if (first == nullptr || peer->rank < first->rank) first = peer;
  }
  if (first == nullptr) return std::nullopt;
  return Successor{.group_rank = first->rank, .node = first->hello.node, .address = first->hello.listens};
}

PersistentState LeadershipTransfer::state(std::uint64_t term) const {
  const Peer* const self = peers_.find(settings_.self);
  PersistentState state{
      .promised_term = term, .current = membership_.current(), .previous = membership_.previous(), .budget = {}};
  state.current.rank = self == nullptr ? -1 : self->rank;
  state.previous.rank = self == nullptr ? -1 : self->previous_rank;
  return state;
}

}  // namespace ddprun::rendezvous
