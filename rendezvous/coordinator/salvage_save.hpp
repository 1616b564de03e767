// Saves the state of a job that ends while its workers wait for the replacement of a lost worker. Either no replacement is
// possible, or a stop signal arrived and the replacement is not ready in time. All waiting workers have the same state, so one
// save is enough. The coordinator requests the save from one node after the other, until one node has saved. Each request is a
// CoordinatedSave with one node (coordinated_save.hpp). The code is pure: no I/O, no clock.
//
// This class stores the nodes that have not received a request yet.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

class SalvageSave {
 public:
  // `otherwise` is the verdict if no node can save. `nodes` are the nodes that get a request, in this order.
  SalvageSave(Verdict otherwise, const std::vector<Peer*>& nodes) : otherwise_(std::move(otherwise)) {
    for (const Peer* peer : nodes) candidates_.push_back(peer->hello.node);
  }

  // Removes the next node that gets a request, and returns it; nullptr if no connected node is left.
  Peer* next(Peers& peers) {
    while (!candidates_.empty()) {
      Peer* peer = peers.find(candidates_.front());
      candidates_.pop_front();
      if (peer != nullptr && peer->connected()) return peer;
    }
    return nullptr;
  }

  const Verdict& otherwise() const { return otherwise_; }

 private:
  std::deque<NodeId> candidates_;
  Verdict otherwise_;
};

}  // namespace ddprun::rendezvous
