// Nodes that got a stop signal, and may leave while the others continue. A scheduler that stops the job signals all of its
// nodes, but not at the same moment. So after the first signal the coordinator waits for others before it decides that only
// this node leaves. It asks this class when the round must end, and how many nodes leave. Pure.
//
// This class owns which nodes want to leave, with which signal, and how long to wait for more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class Leaving {
 public:
  explicit Leaving(const CoordinatorSettings& settings)
      : self_(settings.self),
        call_(settings.rules.stop_requests_are_one ? settings.stop_call : milliseconds{0}),
        own_call_(settings.rules.stop_requests_are_one
                      ? std::max(settings.stop_call, std::min(settings.lease / 5, milliseconds{1000}))
                      : milliseconds{0}) {}

  // `saves`: all workers save before the nodes leave.
  void ask(const Peer& peer, std::int32_t signal, bool saves, Time now) {
    saves_ = saves_ || saves;
    if (nodes_.empty()) {
      saves_ = saves;
      signal_ = signal;
      first_ = peer.hello.hostname;
      ends_ = now + call_;
    }
    // A request of another node has already crossed the network. The signal of the own node is seen sooner, so we also wait for
    // the longest delay of the network.
    if (peer.hello.node == self_) ends_ = std::max(ends_, now + own_call_);
    nodes_.insert(peer.hello.node);
  }
  void lost(const Peer& peer) { nodes_.erase(peer.hello.node); }
  void clear() { nodes_.clear(); }
  NodeIds take() { return std::exchange(nodes_, {}); }

  bool contains(const NodeId& id) const { return nodes_.contains(id); }
  bool empty() const { return nodes_.empty(); }
  std::int64_t count() const { return std::ssize(nodes_); }
  std::int32_t signal() const { return signal_; }
  bool saves() const { return saves_; }
  bool is_due(Time now) const { return ends_ <= now; }
  std::optional<Time> deadline() const { return nodes_.empty() ? std::nullopt : std::optional(ends_); }
  // A text for messages.
  std::string why() const {
    return nodes_.size() == 1 ? first_ + " is leaving" : std::to_string(nodes_.size()) + " nodes are leaving";
  }

 private:
  NodeId self_;
  milliseconds call_;
  milliseconds own_call_;
  NodeIds nodes_;
  std::int32_t signal_ = 0;
  bool saves_ = false;
  std::string first_;
  Time ends_{};
};

}  // namespace ddprun::rendezvous
