// Counts the recent losses of each node. The coordinator checks it when a node sends Hello. A node whose connection flaps would
// end one round after the other, so it is set aside for a while. Keeps the loss times of the newest few thousand nodes. Pure.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

class Losses {
 public:
  explicit Losses(const CoordinatorSettings& settings)
      : flaps_(settings.flaps), window_(settings.flap_window), cool_down_(settings.cool_down) {}

  // Counts one loss. Returns true if the node was lost too often: it is set aside from now on.
  bool note(const NodeId& id, Time now);
  // The remaining time for which the node is set aside; nullopt if it may join.
  std::optional<milliseconds> set_aside_for(const NodeId& id, Time now) const;

 private:
  struct Node {
    std::vector<Time> times;
    Time set_aside_until{};
  };

  int flaps_;
  milliseconds window_;
  milliseconds cool_down_;
  std::unordered_map<NodeId, Node, HashNodeId> nodes_;
};

}  // namespace ddprun::rendezvous
