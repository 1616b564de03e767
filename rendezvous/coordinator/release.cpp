#include "rendezvous/coordinator/release.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/base/check.hpp"
#include "rendezvous/membership/reserves.hpp"

namespace ddprun::rendezvous {
namespace {

// Selects at most `limit` successors (the candidates of the next election). Nodes with neighboring ranks are often in one rack
// and may fail together with the coordinator. So we divide the nodes by rank into `limit` equal groups, and select the middle
// node of each group.
std::vector<Successor> spread(const std::vector<Successor>& able, std::size_t limit) {
  if (able.size() <= limit) return able;
  std::vector<Successor> named;
  for (std::size_t part = 0; part < limit; ++part) named.push_back(able[(2 * part + 1) * able.size() / (2 * limit)]);
  return named;
}

}  // namespace

PlacedNodes place_ready(Peers& peers, const CoordinatorSettings& settings) {
  std::vector<Peer*> nodes;
  nodes.reserve(peers.all().size());
  for (auto& [id, peer] : peers.all()) {
    if (peer.connected() && peer.ready) nodes.push_back(&peer);
  }
  const auto key = [&](const Peer* peer) {
    const std::int32_t rank = peer->rank >= 0 ? peer->rank : kMaxNodes;
    return std::tuple(peer->hello.node != settings.self, rank, peer->order);
  };
  std::sort(nodes.begin(), nodes.end(), [&](const Peer* a, const Peer* b) { return key(a) < key(b); });
  drop_unneeded_reserves(nodes, settings);
  std::vector<Participant> participants;
  participants.reserve(nodes.size());
  for (const Peer* peer : nodes) {
    participants.push_back({.kept_rank = peer->rank >= 0 ? peer->rank : peer->hello.wanted_group_rank,
                            .role = peer->hello.role,
                            .workers = peer->hello.local_world_size});
  }
  PlacedNodes placed{.by_rank = {}, .placement = place(participants, settings.max_nodes, settings.rules)};
  for (const NodeRanks& ranks : placed.placement.ranks) {
    placed.by_rank.push_back(ranks.participant < nodes.size() ? nodes[ranks.participant] : nullptr);
  }
  return placed;
}

Roster roster_of(const PlacedNodes& placed, const Config& round) {
  Roster roster{.origin = round.origin(), .nodes = {}};
  for (const Peer* peer : placed.by_rank) roster.nodes.push_back(peer == nullptr ? NodeId{} : peer->hello.node);
  return roster;
}

std::int32_t first_number_of(const PlacedNodes& placed, const Config& round, std::int32_t before) {
  // upper limit for round numbers; a node that reports a higher number is faulty or hostile
  constexpr std::int32_t kMaxRounds = 1'000'000'000;
  std::int64_t first = before;
  for (const Peer* peer : placed.by_rank) {
    if (peer != nullptr && peer->hello.next_number <= kMaxRounds)
      first = std::max(first, peer->hello.next_number - round.id.round);
  }
  return static_cast<std::int32_t>(first);
}

Release common_release(const PlacedNodes& placed, const Config& round, const Budget& budget,
                       const CoordinatorSettings& settings) {
  const auto named = [](const Peer& peer) {
    return Successor{.group_rank = peer.rank, .node = peer.hello.node, .address = peer.hello.listens};
  };
  Release release;
  release.id = round.id;
  release.born = round.born;
  release.nodes = round.nodes;
  release.arbiter = round.arbiter;
  release.founder = round.founder;
  release.world_size = placed.placement.world_size;
  release.budget = budget;
  release.max_restarts = settings.max_restarts;
  std::vector<Successor> able;
  for (const Peer* peer : placed.by_rank) {
    if (peer == nullptr) continue;
    if (peer->hello.node == settings.self) {
      release.coordinator = named(*peer);
    } else if (peer->hello.listens.port != 0) {
      able.push_back(named(*peer));
    }
  }
  release.successors = spread(able, settings.rules.successors_named);
  if (const Peer* first = placed.by_rank.front(); first != nullptr) {
    release.master.host = settings.master_addr.empty() ? first->hello.listens.host : settings.master_addr;
    check(!release.master.host.empty(), "a round starts, but the address of the node with rank 0 is unknown");
    release.master.port = settings.master_port != 0 ? settings.master_port : first->master_port;
  }
  return release;
}

Release release_for(const Peer& peer, const Release& common, const Config& previous) {
  Release copy = common;
  copy.group_rank = peer.rank;
  copy.start = peer.rank >= 0;
  copy.previous = previous;
  copy.previous.rank = peer.previous_rank;
  return copy;
}

Arbitrated arbitrated(const PlacedNodes& placed, const CoordinatorSettings& settings) {
  const std::vector<Peer*>& nodes = placed.by_rank;
  if (settings.min_nodes > 1 || nodes.size() != 2 || nodes[0] == nullptr || nodes[1] == nullptr) return {};
  const Hello& one = nodes[0]->hello;
  const Hello& other = nodes[1]->hello;
  if (one.arbiter != 0 && one.arbiter == other.arbiter) return {.arbiter = Arbiter::kEtcd, .founder = settings.self};
  if (one.run_directory != 0 && one.run_directory == other.run_directory) {
    return {.arbiter = Arbiter::kRunDirectory, .founder = settings.self};
  }
  return {};
}

coordinator_action::SetDeathNotice death_notice_for(const PlacedNodes& placed, const Config& round,
                                                    const CoordinatorSettings& settings) {
  const std::vector<Peer*>& nodes = placed.by_rank;
  if (nodes.size() != 2 || nodes[0] == nullptr || nodes[1] == nullptr || nodes[0]->hello.node != settings.self) return {};
  const Hello& other = nodes[1]->hello;
  return {.round = round.id, .to = {other.listens.host, other.death_notice_port}, .key = other.death_notice_key};
}

void send_release(const PlacedNodes& placed, const Release& common, const Config& previous, Peers& peers, Outbox& outbox) {
  outbox.expect(peers.all().size());
  for (std::size_t rank = 0; rank < placed.by_rank.size(); ++rank) {
    if (placed.by_rank[rank] == nullptr) continue;
    const Peer& peer = *placed.by_rank[rank];
    Release copy = release_for(peer, common, previous);
    copy.rank_offset = placed.placement.ranks[rank].rank_offset;
    copy.role_rank_offset = placed.placement.ranks[rank].role_rank_offset;
    copy.role_world_size = placed.placement.role_sizes.at(peer.hello.role);
    outbox.send(peer, std::move(copy));
  }
  for (const Peer* peer : peers.by_age()) {
    if (peer->rank < 0 && peer->connected()) outbox.send(*peer, release_for(*peer, common, previous));
  }
}

}  // namespace ddprun::rendezvous
