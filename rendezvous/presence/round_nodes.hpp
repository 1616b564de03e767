// The nodes of the current round: which are connected, and which have finished. The coordinator starts a new list with each
// round, and reports which node is lost, has come back, or is done. Pure.
//
// This class owns their order by group rank, and both counts. It is the only writer of Peer's `in_round` and `done`. A finished
// node stays finished until the next round, even if its connection is lost: its part is done.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "rendezvous/presence/peers.hpp"

namespace ddprun::rendezvous {

class RoundNodes {
 public:
  void begin(std::int32_t nodes, const std::vector<Peer*>& by_rank, Peers& peers) {
    for (auto& [id, peer] : peers.all()) peer.in_round = peer.done = false;
    nodes_.clear();
    for (Peer* const peer : by_rank) {
      if (peer == nullptr) continue;
      peer->in_round = true;
      nodes_.push_back(peer->hello.node);
    }
    here_ = nodes;
    done_ = 0;
  }
  void lost(Peer& peer) {
    if (std::exchange(peer.in_round, false)) --here_;
  }
  void back(Peer& peer) {
    if (!std::exchange(peer.in_round, true)) ++here_;
  }
  // Returns false if the node was done before, or has no rank in the round.
  bool done(Peer& peer) {
    if (peer.rank < 0 || std::exchange(peer.done, true)) return false;
    ++done_;
    return true;
  }

  std::int32_t here() const { return here_; }
  std::int32_t done() const { return done_; }
  const std::vector<NodeId>& nodes() const { return nodes_; }  // in the order of group ranks

 private:
  std::vector<NodeId> nodes_;
  std::int32_t here_ = 0;
  std::int32_t done_ = 0;
};

}  // namespace ddprun::rendezvous
