// Nodes that keep answering, but whose workers do not end: a node with a worker stuck in the kernel would keep all others
// waiting for ever. The coordinator reports which nodes it waits for, and asks what is due. Pure.
//
//     awaited -- a while --> people are told -- ready_timeout --> gets no more grants -- a lease --> lost
//
// So the node's workers have no grant any more when the others continue without it. The node may come back, to vote and to wait
// for its workers, but nobody waits for it again.
//
// This class owns since when each node is awaited, and which nodes were given up. Of a Peer it alone writes `straggles`.
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

  // The coordinator waits for the node's workers from now on, or again.
  void await(const Peer& peer, Time now);
  std::optional<Time> next_deadline() const;

  // ---- what is due, each once ----
  // A message that names the nodes that were awaited for long; empty when there is nothing new.
  std::string take_news(Peers& peers, Time now);
  // Nodes that are given up get no more grants from now on.
  void give_up_due(Peers& peers, Time now);
  // The nodes whose last grant must have ended.
  std::vector<NodeId> take_lost(Peers& peers, Time now);
  // The reason for the loss, for messages.
  std::string why() const;

  // ---- who comes back ----
  // Whether the node still has workers for which nobody waits any more.
  bool still_has_workers(const Peer& peer, Time now);
  void forgive(Peer& peer);

 private:
  struct Awaited {
    Time since;
    NodeId node;
  };
  struct Stage {
    nanoseconds after{};
    std::deque<Awaited> nodes{};  // the one awaited longest is first
  };

  void know(const Hello& hello);
  std::vector<NodeId> take(Stage& stage, const Peers& peers, Time now);

  milliseconds timeout_;
  Stage told_;
  Stage given_up_;
  Stage lost_;
  std::unordered_map<NodeId, std::uint64_t, HashNodeId> known_;  // nodes that were given up, with the incarnation of each
};

}  // namespace ddprun::rendezvous
