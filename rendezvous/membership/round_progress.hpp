// Stores which nodes of the current round are connected, and which have finished. The coordinator calls begin() for each new
// round, and calls lost(), back() or done() when the state of a node changes. The code is pure: no I/O, no clock.
//
// This class owns the list of the nodes by group rank, and the numbers of connected and finished nodes. Only this class sets
// `in_round` and `done` of a Peer. A node that has finished counts as done until the next round, even if its connection is
// lost, because its workers have no work left.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "rendezvous/membership/peers.hpp"

namespace ddprun::rendezvous {

class RoundProgress {
 public:
  void begin(std::int32_t nodes, const std::vector<Peer*>& by_rank, Peers& peers) {
    for (auto& [id, peer] : peers.all()) peer.in_round = peer.done = false;
    nodes_.clear();
    for (Peer* const peer : by_rank) {
      if (peer == nullptr) continue;
      peer->in_round = true;
      nodes_.push_back(peer->hello.node);
    }
    connected_ = nodes;
    done_ = 0;
  }
  void lost(Peer& peer) {
    if (std::exchange(peer.in_round, false)) --connected_;
  }
  void back(Peer& peer) {
    if (!std::exchange(peer.in_round, true)) ++connected_;
  }
  // Call this when all workers of the node have finished. Returns false if the node was already done, or has no rank in the
  // round.
  bool done(Peer& peer) {
    if (peer.rank < 0 || std::exchange(peer.done, true)) return false;
    ++done_;
    return true;
  }

  std::int32_t connected() const { return connected_; }
  std::int32_t done() const { return done_; }
  const std::vector<NodeId>& nodes() const { return nodes_; }  // sorted by group rank

 private:
  std::vector<NodeId> nodes_;
  std::int32_t connected_ = 0;
  std::int32_t done_ = 0;
};

}  // namespace ddprun::rendezvous
