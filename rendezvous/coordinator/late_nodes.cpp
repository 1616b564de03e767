#include "rendezvous/coordinator/late_nodes.hpp"

#include <algorithm>

#include "rendezvous/coordinator/entry.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMaxKnown = 4096;
constexpr std::size_t kMaxNamed = 4;
constexpr milliseconds kLogAfter{10000};

}  // namespace

LateNodes::LateNodes(const CoordinatorSettings& settings)
    : timeout_(std::max(settings.ready_timeout, settings.lease)),
      logged_{.after = std::min(timeout_ / 4, kLogAfter)},
      given_up_{.after = timeout_},
      lost_{.after = timeout_ + settings.lease} {}

void LateNodes::await(const Peer& peer, Time now) {
  // If the coordinator has started to wait for this node at an earlier time, the deadlines of that wait do not change.
  if (peer.awaited_since != now) return;
  for (Stage* stage : {&logged_, &given_up_, &lost_}) stage->nodes.push_back({now, peer.hello.node});
}

std::optional<Time> LateNodes::next_deadline() const {
  std::optional<Time> next;
  for (const Stage* stage : {&logged_, &given_up_, &lost_}) {
    if (stage->nodes.empty()) continue;
    keep_earlier(next, stage->nodes.front().since + stage->after);
  }
  return next;
}

std::vector<NodeId> LateNodes::take(Stage& stage, const Peers& peers, Time now) {
  std::vector<NodeId> due;
  while (!stage.nodes.empty() && stage.nodes.front().since + stage.after <= now) {
    const Awaited first = stage.nodes.front();
    stage.nodes.pop_front();
    const Peer* const peer = peers.find(first.node);
    if (peer != nullptr && peer->awaited_since == first.since && peers.awaits(first.node)) due.push_back(first.node);
  }
  return due;
}

std::string LateNodes::take_message(Peers& peers, Time now) {
  const std::vector<NodeId> nodes = take(logged_, peers, now);
  if (nodes.empty()) return {};
  std::string text = "waiting for the workers of ";
  for (std::size_t i = 0; i < std::min(nodes.size(), kMaxNamed); ++i) {
    text += (i == 0 ? "" : ", ") + name_of(peers.at(nodes[i]).hello);
  }
  if (nodes.size() > kMaxNamed) text += " and " + std::to_string(nodes.size() - kMaxNamed) + " other nodes";
  return text + " to end; after " + std::to_string(timeout_.count() / 1000) + " s the other nodes continue without them";
}

void LateNodes::give_up_due(Peers& peers, Time now) {
  for (const NodeId& id : take(given_up_, peers, now)) {
    Peer& peer = peers.at(id);
    peer.is_late = true;
    remember(peer.hello);
  }
}

void LateNodes::remember(const Hello& hello) {
  if (known_.size() >= kMaxKnown) known_.erase(known_.begin());
  known_.insert_or_assign(hello.node, hello.incarnation);
}

std::vector<NodeId> LateNodes::take_lost(Peers& peers, Time now) {
  return take(lost_, peers, now);
}

std::string LateNodes::why() const {
  return "did not end its workers within " + std::to_string(timeout_.count() / 1000) + " s";
}

// ---- nodes that come back ----

bool LateNodes::still_has_workers(const Peer& peer, Time now) {
  const Hello& hello = peer.hello;
  const auto found = known_.find(hello.node);
  if (hello.workers == Workers::kRunning || hello.workers == Workers::kStopping) {
    if (found != known_.end() && found->second == hello.incarnation) return true;
    const bool late = peer.awaited_since && peer.pending_ready == hello.workers_round && *peer.awaited_since + timeout_ <= now;
    if (late) remember(hello);
    return late;
  }
  if (found != known_.end()) known_.erase(found);
  return false;
}

void LateNodes::forgive(Peer& peer) {
  peer.is_late = false;
  known_.erase(peer.hello.node);
}

}  // namespace ddprun::rendezvous
