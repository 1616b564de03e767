// Implementation of stragglers.hpp.
#include "rendezvous/coordinator/stragglers.hpp"

#include <algorithm>

#include "rendezvous/coordinator/entry.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMostKnown = 4096;
constexpr std::size_t kMostNamed = 4;
constexpr milliseconds kToldAfter{10000};

}  // namespace

Stragglers::Stragglers(const CoordinatorSettings& settings)
    : timeout_(std::max(settings.ready_timeout, settings.lease)),
      told_{.after = std::min(timeout_ / 4, kToldAfter)},
      given_up_{.after = timeout_},
      lost_{.after = timeout_ + settings.lease} {}

void Stragglers::await(const Peer& peer, Time now) {
  if (peer.awaited_since != now) return;  // it was awaited before, and its deadlines stay unchanged
  for (Stage* stage : {&told_, &given_up_, &lost_}) stage->nodes.push_back({now, peer.hello.node});
}

std::optional<Time> Stragglers::next_deadline() const {
  std::optional<Time> next;
  for (const Stage* stage : {&told_, &given_up_, &lost_}) {
    if (stage->nodes.empty()) continue;
    const Time due = stage->nodes.front().since + stage->after;
    if (!next || due < *next) next = due;
  }
  return next;
}

std::vector<NodeId> Stragglers::take(Stage& stage, const Peers& peers, Time now) {
  std::vector<NodeId> due;
  while (!stage.nodes.empty() && stage.nodes.front().since + stage.after <= now) {
    const Awaited first = stage.nodes.front();
    stage.nodes.pop_front();
    const Peer* const peer = peers.find(first.node);
    if (peer != nullptr && peer->awaited_since == first.since && peers.awaits(first.node)) due.push_back(first.node);
  }
  return due;
}

std::string Stragglers::take_news(Peers& peers, Time now) {
  const std::vector<NodeId> nodes = take(told_, peers, now);
  if (nodes.empty()) return {};
  std::string text = "waiting for the workers of ";
  for (std::size_t i = 0; i < std::min(nodes.size(), kMostNamed); ++i) {
    text += (i == 0 ? "" : ", ") + name_of(peers.at(nodes[i]).hello);
  }
  if (nodes.size() > kMostNamed) text += " and " + std::to_string(nodes.size() - kMostNamed) + " other nodes";
  return text + " to end; after " + std::to_string(timeout_.count() / 1000) + " s the others go on without";
}

void Stragglers::give_up_due(Peers& peers, Time now) {
  for (const NodeId& id : take(given_up_, peers, now)) {
    Peer& peer = peers.at(id);
    peer.straggles = true;
    know(peer.hello);
  }
}

void Stragglers::know(const Hello& hello) {
  if (known_.size() >= kMostKnown) known_.erase(known_.begin());
  known_.insert_or_assign(hello.node, hello.incarnation);
}

std::vector<NodeId> Stragglers::take_lost(Peers& peers, Time now) {
  return take(lost_, peers, now);
}

std::string Stragglers::why() const {
  return "did not end its workers within " + std::to_string(timeout_.count() / 1000) + " s";
}

// ---- who comes back ----

bool Stragglers::still_has_workers(const Peer& peer, Time now) {
  const Hello& hello = peer.hello;
  const auto found = known_.find(hello.node);
  if (hello.workers == Workers::kRunning || hello.workers == Workers::kStopping) {
    if (found != known_.end() && found->second == hello.incarnation) return true;
    const bool late = peer.awaited_since && peer.owes_ready == hello.workers_round && *peer.awaited_since + timeout_ <= now;
    if (late) know(hello);
    return late;
  }
  if (found != known_.end()) known_.erase(found);
  return false;
}

void Stragglers::forgive(Peer& peer) {
  peer.straggles = false;
  known_.erase(peer.hello.node);
}

}  // namespace ddprun::rendezvous
