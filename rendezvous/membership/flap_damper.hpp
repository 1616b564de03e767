// Locks out nodes that are lost too often. Each loss of a node ends the round for all nodes, so an unstable connection would
// disturb the whole job. A node that was lost several times within a short time may not rejoin for a while. The coordinator
// calls note() for each lost node, and set_aside_for() for each Hello. At most 4096 nodes are stored. The code is pure: no I/O,
// no clock.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

class FlapDamper {
 public:
  explicit FlapDamper(const CoordinatorSettings& settings) : settings_(settings) {}

  // Counts one loss of the node. Returns true if the node may not rejoin for a while from now on.
  bool note(const NodeId& id, Time now);
  // Returns for how long the node may not rejoin; nullopt if it may rejoin now.
  std::optional<milliseconds> set_aside_for(const NodeId& id, Time now) const;

 private:
  struct Node {
    std::vector<Time> times;
    Time set_aside_until{};
  };

  const CoordinatorSettings& settings_;
  std::unordered_map<NodeId, Node, HashNodeId> nodes_;
};

}  // namespace ddprun::rendezvous
