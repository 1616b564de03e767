// Saves the state of a job that ends before a lost worker is replaced. Either no replacement is possible, or a stop signal came
// and the replacement is not ready in time. The other workers wait, and all hold the same state. So the coordinator asks one
// node after the other to save, until one has saved. It sends these requests through saving.hpp. Pure.
//
// This class owns which nodes can still be asked, and how the job ends.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "common/base/exit_code.hpp"
#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

class LastSave {
 public:
  // `otherwise` is the verdict for the case that no node can save.
  LastSave(Verdict otherwise, const std::vector<Peer*>& nodes) : otherwise_(std::move(otherwise)) {
    for (const Peer* peer : nodes) to_ask_.push_back(peer->hello.node);
  }

  // The next node to ask; nullptr if no node is left.
  Peer* next(Peers& peers) {
    while (!to_ask_.empty()) {
      Peer* peer = peers.find(to_ask_.front());
      to_ask_.pop_front();
      if (peer != nullptr && peer->here()) return peer;
    }
    return nullptr;
  }

  int exit_code(bool saved) const {
    return saved && otherwise_.preempted_once_saved ? static_cast<int>(ExitCode::kPreempted) : otherwise_.exit_code;
  }
  std::string why(bool saved) const {
    if (!saved) return otherwise_.end();
    return otherwise_.end() + "; what the others held is saved" +
           (otherwise_.preempted_once_saved ? ": run it again to go on" : "");
  }

 private:
  std::deque<NodeId> to_ask_;
  Verdict otherwise_;
};

}  // namespace ddprun::rendezvous
