// What a coordinator wants done, as values. Its parts put them into one Outbox, which keeps their order; Coordinator::on()
// hands them to the node.
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
struct Close {  // after what was sent before has gone
  LinkId link = 0;
};
// A worker of another node asks the store; the shell serves it and sends the StoreAnswer over the link.
struct ServeStore {
  LinkId link = 0;
  StoreAsk ask{};
};
struct Say {
  NodeNotice notice{};
};
// It leads no more: close all links. Its own member looks for the next coordinator.
struct StepDown {
  std::string why{};
  std::uint64_t term = 0;  // that somebody has promised; 0: not known
  Address leader{};        // where another coordinator is, if known
  bool unfit = false;      // this node is not to lead again while it has the workers that it has now
};
// To be written before any of the messages that follow is sent.
struct KeepRoster {
  Roster roster{};
};
// Of a round of two nodes: should this agent die, its guardian tells the other node, once all workers here are gone, that this
// one votes for nobody any more. Takes the place of what was entrusted before. Port 0: nothing is entrusted.
struct Entrust {
  RoundId round{};
  Address to{};
  FarewellKey key{};
};
// The round ends since this node leaves, and the others go on: its member may say so when its workers have ended.
struct LetGo {};
// Everybody knows that the job is over, or was given the time to.
struct Finished {};
}  // namespace coordinator_action
using CoordinatorAction = std::variant<coordinator_action::Send, coordinator_action::Close, coordinator_action::ServeStore,
                                       coordinator_action::Say, coordinator_action::StepDown, coordinator_action::KeepRoster,
                                       coordinator_action::Entrust, coordinator_action::LetGo, coordinator_action::Finished>;

class Outbox {
 public:
  template <class Action>
  void act(Action action) {
    actions_.emplace_back(std::move(action));
  }
  // To a node that has a link; one that has none hears nothing.
  void send(const Peer& peer, FromCoordinator message) {
    if (peer.link) act(coordinator_action::Send{*peer.link, std::move(message)});
  }
  void say(NodeNotice::Kind kind, std::string text, std::int64_t count = 0, std::int64_t of = 0) {
    act(coordinator_action::Say{NodeNotice{.kind = kind, .text = std::move(text), .count = count, .of = of}});
  }
  std::vector<CoordinatorAction> take() { return std::exchange(actions_, {}); }

 private:
  std::vector<CoordinatorAction> actions_;
};

}  // namespace ddprun::rendezvous
