// Actions of the coordinator: requests to the node, as values. The coordinator's parts append them to one Outbox, which keeps
// their order. Coordinator::on() returns them to the node.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

namespace coordinator_action {
struct Send {
  LinkId link = 0;
  FromCoordinator message{};
};
struct Close {  // after all messages that were sent before
  LinkId link = 0;
};
// A worker of another node sends a request to the store. The shell serves it and sends the StoreAnswer over the link.
struct ServeStore {
  LinkId link = 0;
  StoreAsk ask{};
};
struct Say {
  NodeNotice notice{};
};
// The coordinator no longer leads: close all links. The member of this node then looks for the next coordinator.
struct StepDown {
  std::string why{};
  std::uint64_t term = 0;  // a term that another node has promised; 0: unknown
  Address leader{};        // the address of another coordinator, if known
  bool unfit = false;      // this node must not lead again with its present workers
};
// Must be written before any of the following messages is sent.
struct KeepRoster {
  Roster roster{};
};
// Used in a round of two nodes. If this agent dies, its guardian waits until all workers here are gone. Then it informs the
// other node that this node will not vote again. This replaces the farewell that was entrusted before. Port 0: no farewell.
struct Entrust {
  RoundId round{};
  Address to{};
  FarewellKey key{};
};
// All nodes know that the job is over, or the time to learn it has passed.
struct Finished {};
}  // namespace coordinator_action
using CoordinatorAction = std::variant<coordinator_action::Send, coordinator_action::Close, coordinator_action::ServeStore,
                                       coordinator_action::Say, coordinator_action::StepDown, coordinator_action::KeepRoster,
                                       coordinator_action::Entrust, coordinator_action::Finished>;

class Outbox {
 public:
  template <class Action>
  void act(Action action) {
    actions_.emplace_back(std::move(action));
  }
  // Sends to a node that has a link; without a link the message is dropped.
  void send(const Peer& peer, FromCoordinator message) {
    if (peer.link) act(coordinator_action::Send{*peer.link, std::move(message)});
  }
  void say(NodeNotice::Kind kind, std::string text, std::int64_t count = 0, std::int64_t of = 0) {
    act(coordinator_action::Say{NodeNotice{.kind = kind, .text = std::move(text), .count = count, .of = of}});
  }
  void expect(std::size_t more) { actions_.reserve(actions_.size() + more); }
  std::vector<CoordinatorAction> take() { return std::exchange(actions_, {}); }

 private:
  std::vector<CoordinatorAction> actions_;
};

}  // namespace ddprun::rendezvous
