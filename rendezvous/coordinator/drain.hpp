// Collects the nodes that request to leave the job after a stop signal. A scheduler that stops a job signals all of its nodes,
// but not at the same moment. So after the first signal, the coordinator waits a short time for signals to other nodes. Only
// then can it decide whether some nodes leave or the whole job stops. The code is pure: no I/O, no clock.
//
// This class stores the leaving nodes and the signal, and decides how long to wait for further nodes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class Drain {
 public:
  explicit Drain(const CoordinatorSettings& settings)
      : self_(settings.self),
        call_(settings.rules.stop_requests_are_merged ? settings.stop_call : milliseconds{0}),
        self_call_(settings.rules.stop_requests_are_merged
                       ? std::max(settings.stop_call, std::min(settings.lease / 5, milliseconds{1000}))
                       : milliseconds{0}) {}

  // Adds a node that requests to leave. If `saves` is true, all workers must save before the nodes leave.
  void request_leave(const Peer& peer, std::int32_t signal, bool saves, Time now) {
    saves_ = saves_ || saves;
    if (nodes_.empty()) {
      saves_ = saves;
      signal_ = signal;
      first_ = peer.hello.hostname;
      ends_ = now + call_;
    }
    // If this node's own agent requests to leave, we also wait for the longest expected network delay, because its request
    // arrives without a delay. The request of another node takes some time in the network, and during that time the requests
    // of further nodes can arrive too.
    if (peer.hello.node == self_) ends_ = std::max(ends_, now + self_call_);
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
  // Describes why a round ends, for messages.
  std::string why() const {
    return nodes_.size() == 1 ? first_ + " is leaving" : std::to_string(nodes_.size()) + " nodes are leaving";
  }

 private:
  NodeId self_;
  milliseconds call_;
  milliseconds self_call_;
  NodeIds nodes_;
  std::int32_t signal_ = 0;
  bool saves_ = false;
  std::string first_;
  Time ends_{};
};

}  // namespace ddprun::rendezvous
