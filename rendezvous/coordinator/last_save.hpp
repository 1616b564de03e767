// What is left of a job that ends since a worker cannot be replaced: the others wait with their state, and what one of them
// holds is what all hold. So one node after the other is asked to save it, until one has. The coordinator keeps the order and
// asks (saving.hpp). Pure.
//
// It owns who is still to be asked, and how the job ends.
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
  // `otherwise`: how the job ends when nobody can save.
  LastSave(Verdict otherwise, const std::vector<Peer*>& nodes) : otherwise_(std::move(otherwise)) {
    for (const Peer* peer : nodes) to_ask_.push_back(peer->hello.node);
  }

  // Who is asked now; nullptr: nobody is left.
  Peer* next(Peers& peers) {
    while (!to_ask_.empty()) {
      Peer* peer = peers.find(to_ask_.front());
      to_ask_.pop_front();
      if (peer != nullptr && peer->here()) return peer;
    }
    return nullptr;
  }

  int exit_code(bool saved) const { return saved ? static_cast<int>(ExitCode::kPreempted) : otherwise_.exit_code; }
  std::string why(bool saved) const {
    return saved ? otherwise_.why + "; what the others held is saved: run it again to go on" : otherwise_.why;
  }

 private:
  std::deque<NodeId> to_ask_;
  Verdict otherwise_;
};

}  // namespace ddprun::rendezvous
