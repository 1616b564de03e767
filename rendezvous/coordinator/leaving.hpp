// Nodes that a signal asked to stop, and that may leave while the others go on. A scheduler that stops the job signals all of
// its nodes, but not in one moment: so the first one waits a while for others before it is taken for one node that leaves. The
// coordinator asks when the round is to end for that, or too few would stay. Pure.
//
// It owns who asked, with which signal, and until when more are waited for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

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

  // `saves`: before the nodes leave, all save.
  void ask(const Peer& peer, std::int32_t signal, bool saves, Time now) {
    saves_ = saves_ || saves;
    if (nodes_.empty()) {
      saves_ = saves;
      signal_ = signal;
      first_ = peer.hello.hostname;
      ends_ = now + call_;
    }
    // Its own signal needs no time, those of others as long as the network takes at most.
    if (peer.hello.node == self_) ends_ = std::max(ends_, now + own_call_);
    nodes_.insert(peer.hello.node);
  }
  void lost(const Peer& peer) { nodes_.erase(peer.hello.node); }
  void clear() { nodes_.clear(); }

  bool contains(const NodeId& id) const { return nodes_.contains(id); }
  bool empty() const { return nodes_.empty(); }
  std::int64_t count() const { return std::ssize(nodes_); }
  std::int32_t signal() const { return signal_; }
  bool saves() const { return saves_; }
  bool is_due(Time now) const { return ends_ <= now; }
  std::optional<Time> deadline() const { return nodes_.empty() ? std::nullopt : std::optional(ends_); }
  // For people.
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
