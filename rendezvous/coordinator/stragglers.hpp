// Nodes that answer, but whose workers do not end. A node with a worker stuck in the kernel would block all others forever. The
// coordinator reports which nodes it waits for, and polls this class for nodes that are due. Pure.
//
//     awaited -- a while --> logged -- ready_timeout --> gets no more grants -- a lease --> lost
//
// So the node's workers have no grant any more when the others continue without it. The node may come back to vote and to wait
// for its workers, but the coordinator does not wait for it again.
//
// This class owns since when each node is awaited, and which nodes were given up. It is the only writer of Peer's `straggles`.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class Stragglers {
 public:
  explicit Stragglers(const CoordinatorSettings& settings);

  // The coordinator starts or restarts its wait for the node's workers.
  void await(const Peer& peer, Time now);
  std::optional<Time> next_deadline() const;

  // ---- what is due, each once ----
  // A message with the names of the nodes that are awaited for long; empty if there is nothing new.
  std::string take_news(Peers& peers, Time now);
  // Stops the grants of nodes whose time is over.
  void give_up_due(Peers& peers, Time now);
  // Nodes whose last grant must have ended.
  std::vector<NodeId> take_lost(Peers& peers, Time now);
  // The reason for the loss, for messages.
  std::string why() const;

  // ---- who comes back ----
  // True if the node still has workers that the coordinator has given up on.
  bool still_has_workers(const Peer& peer, Time now);
  void forgive(Peer& peer);

 private:
  struct Awaited {
    Time since;
    NodeId node;
  };
  struct Stage {
    nanoseconds after{};
    std::deque<Awaited> nodes{};  // the longest wait first
  };

  void know(const Hello& hello);
  std::vector<NodeId> take(Stage& stage, const Peers& peers, Time now);

  milliseconds timeout_;
  Stage told_;
  Stage given_up_;
  Stage lost_;
  std::unordered_map<NodeId, std::uint64_t, HashNodeId> known_;  // the incarnation of each node that was given up
};

}  // namespace ddprun::rendezvous
