#include "rendezvous/membership/peers.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {

// ---- lookups ----

Peer* Peers::find(const NodeId& id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

Peer* Peers::by_link(LinkId link) {
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : found->second;
}

std::optional<Time> Peers::oldest_contact() const {
  if (by_age_.empty()) return std::nullopt;
  return by_age_.front()->last_contact;
}

bool Peers::knows(const Address& address) const {
  return std::any_of(by_age_.begin(), by_age_.end(), [&](const Peer* peer) { return peer->hello.listens == address; });
}

const NodeId* Peers::holder_of(std::int32_t wanted_rank) const {
  const auto found = rank_holders_.find(wanted_rank);
  return found == rank_holders_.end() ? nullptr : &found->second;
}

std::vector<Peer*> Peers::in_round(const std::vector<NodeId>& ids) {
  std::vector<Peer*> found;
  found.reserve(ids.size());
  for (const NodeId& id : ids) {
    Peer* const peer = find(id);
    if (peer != nullptr && peer->connected() && peer->rank >= 0) found.push_back(peer);
  }
  return found;
}

std::vector<Peer*> Peers::round_members() {
  std::vector<Peer*> nodes;
  for (auto& [id, peer] : peers_) {
    if (peer.connected() && peer.rank >= 0) nodes.push_back(&peer);
  }
  std::sort(nodes.begin(), nodes.end(), [](const Peer* a, const Peer* b) { return a->rank < b->rank; });
  return nodes;
}

// ---- arrivals and lost nodes ----

void Peers::connect(Peer& peer, LinkId link, const Hello& hello, Time now) {
  peer.hello = hello;
  peer.link = link;
  peer.order = next_order_++;
  peer.welcome = false;
  if (std::exchange(peer.ready_once_confirmed, false)) --unconfirmed_;
  peer.ready = false;
  peer.master_port = hello.master_port;
  peer.last_contact = now;
  peer.age = by_age_.insert(by_age_.end(), &peer);
  links_.emplace(link, &peer);
  if (hello.wanted_group_rank >= 0) rank_holders_.try_emplace(hello.wanted_group_rank, hello.node);
}

void Peers::receive(Peer& peer, Time now) {
  peer.last_contact = now;
  by_age_.splice(by_age_.end(), by_age_, peer.age);
}

void Peers::disconnect(Peer& peer) {
  const NodeId& id = peer.hello.node;
  set_ready(peer, false);
  if (std::exchange(peer.ready_once_confirmed, false)) --unconfirmed_;
  links_.erase(*peer.link);
  by_age_.erase(peer.age);
  stop_awaiting(peer);
  const auto holder = rank_holders_.find(peer.hello.wanted_group_rank);
  if (holder != rank_holders_.end() && holder->second == id) rank_holders_.erase(holder);
  peer.link.reset();
}

void Peers::forget_unranked() {
  std::erase_if(peers_, [](const auto& entry) { return !entry.second.link && entry.second.rank < 0; });
}

void Peers::keep_counting(Peer& peer) {
  by_age_.erase(peer.age);
  links_.erase(*peer.link);
  stop_awaiting(peer);
  if (peer.ready) --ready_;
}

// ---- ready ----

void Peers::set_ready(Peer& peer, bool ready) {
  if (peer.ready == ready) return;
  peer.ready = ready;
  ready_ += ready ? 1 : -1;
}

void Peers::set_ready_once_confirmed(Peer& peer) {
  if (!std::exchange(peer.ready_once_confirmed, true)) ++unconfirmed_;
}

bool Peers::take_confirmed(Peer& peer) {
  if (!std::exchange(peer.ready_once_confirmed, false)) return false;
  --unconfirmed_;
  set_ready(peer, true);
  return true;
}

void Peers::await_workers(Peer& peer, const RoundId& round, Time now) {
  if (peer.pending_ready != round || !peer.awaited_since) peer.awaited_since = now;
  peer.pending_ready = round;
  if (!std::exchange(peer.awaited, true)) ++awaited_;
}

bool Peers::stop_awaiting(Peer& peer) {
  if (!std::exchange(peer.awaited, false)) return false;
  --awaited_;
  return true;
}

bool Peers::workers_gone(Peer& peer, const RoundId& round) {
  if (round != peer.pending_ready || (!stop_awaiting(peer) && !peer.is_late)) return false;
  peer.pending_ready = RoundId{};
  peer.awaited_since.reset();
  return true;
}

void Peers::stop_awaiting_all() {
  for (auto& [id, peer] : peers_) {
    if (stop_awaiting(peer)) set_ready(peer, true);
  }
}

}  // namespace ddprun::rendezvous
