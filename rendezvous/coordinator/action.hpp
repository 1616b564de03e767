// The actions that the coordinator (the agent that leads the rendezvous) requests from its node, as plain values. The
// coordinator and the classes that it uses append their actions to one Outbox, which preserves the order. Coordinator::on()
// returns the actions, and the node carries them out.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/node_io.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

namespace coordinator_action {
// The coordinator no longer leads, so the node must close all links of the coordinator. The member on this node then searches
// for the next coordinator, unless the job has ended.
struct StepDown {
  std::string why{};
  // a term that another node has promised and that is later than the term of this coordinator; 0: unknown
  std::uint64_t term = 0;
  Address leader{};    // the address of another coordinator, if known
  bool unfit = false;  // if true, this node must not lead again before its workers have ended
};
// The node must store this roster (the nodes of a round by rank) on disk before it sends any later message.
struct KeepRoster {
  Roster roster{};
};
// Sets the death notice, which is a message from this node's guardian process to the other node of a two-node round. If the
// agent dies, the guardian waits until all workers of the node have ended, and then sends the notice. The notice promises that
// this node will not vote again. This action replaces an earlier notice. Port 0 means that no notice is sent.
struct SetDeathNotice {
  RoundId round{};
  Address to{};
  DeathNoticeKey key{};
};
}  // namespace coordinator_action
using CoordinatorAction =
    std::variant<node_action::ToDialler, node_action::CloseLink, node_action::ServeStore, NodeNotice,
                 coordinator_action::StepDown, coordinator_action::KeepRoster, coordinator_action::SetDeathNotice>;

class Outbox {
 public:
  template <class Action>
  void act(Action action) {
    actions_.emplace_back(std::move(action));
  }
  // Sends the message to the node. Drops the message if the node has no link.
  void send(const Peer& peer, FromCoordinator message) {
    if (peer.link) act(node_action::ToDialler{*peer.link, std::move(message)});
  }
  void notify(NodeNotice::Kind kind, std::string text, std::int64_t count = 0, std::int64_t of = 0,
              std::string failed_host = {}) {
    act(NodeNotice{.kind = kind, .text = std::move(text), .count = count, .of = of, .failed_host = std::move(failed_host)});
  }
  void expect(std::size_t more) { actions_.reserve(actions_.size() + more); }
  std::vector<CoordinatorAction> take() { return std::exchange(actions_, {}); }

 private:
  std::vector<CoordinatorAction> actions_;
};

}  // namespace ddprun::rendezvous
