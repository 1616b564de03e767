// How often each node was lost of late. The coordinator asks when a node says hello: one that comes and goes all the time would
// end a round each time, so it is set aside for a while. Owns the times of the losses of the newest few thousand nodes. Pure.
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

  // True: that was once too often, and the node is set aside from now on.
  bool note(const NodeId& id, Time now);
  // For how much longer the node is set aside; nothing: it may come.
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
