// Nodes that say in time that they are here, but not that their workers have ended: one whose worker the kernel does not let go
// would keep all others waiting for ever. The coordinator tells it whom it waits for, and asks what is due. Pure.
//
//     awaited -- a while --> people are told -- ready_timeout --> gets no more grants -- a lease --> lost
//
// So the node's workers may not run any more when the others go on without it. It may come back, to vote and to wait for its
// workers, but nobody waits for it again.
//
// It owns since when each is awaited, and which ones were given up. Of a Peer it alone writes `straggles`.
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

  // The node is awaited from now on, or again.
  void await(const Peer& peer, Time now);
  std::optional<Time> next_deadline() const;

  // ---- what is due, each once ----
  // For people: who is awaited for long; empty when there is nothing new.
  std::string take_news(Peers& peers, Time now);
  // They get no more grants from now on.
  void give_up_due(Peers& peers, Time now);
  // It may have no grant any more.
  std::vector<NodeId> take_lost(Peers& peers, Time now);
  // For people: why it is lost.
  std::string why() const;

  // ---- who comes back ----
  // Whether it has workers still for which nobody waits any more.
  bool still_has_workers(const Peer& peer, Time now);
  void forgive(Peer& peer);

 private:
  struct Awaited {
    Time since;
    NodeId node;
  };
  struct Stage {
    nanoseconds after{};
    std::deque<Awaited> nodes{};  // longest awaited first
  };

  void know(const Hello& hello);
  std::vector<NodeId> take(Stage& stage, const Peers& peers, Time now);

  milliseconds timeout_;
  Stage told_;
  Stage given_up_;
  Stage lost_;
  std::unordered_map<NodeId, std::uint64_t, HashNodeId> known_;  // given up, with the incarnation of each
};

}  // namespace ddprun::rendezvous
