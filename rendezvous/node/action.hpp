// Events and actions of a node (node.hpp), as plain values. The shell (the code with sockets and files) or the simulator passes
// in the events and carries out the actions. Most actions are forwarded unchanged from the node's member or coordinator.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/member/member.hpp"
#include "rendezvous/node/arbitration.hpp"
#include "rendezvous/protocol/node_io.hpp"

namespace ddprun::rendezvous {

namespace node_event {
struct Begin {};
struct StoreAnswered {  // the reply to ServeStore, for a worker of another node
  LinkId link = 0;
  StoreAnswer answer{};
};
// A death notice for this round has arrived. The key of this node has proved that the notice is authentic, so the guardian
// process on the coordinator's node has sent it. The coordinator's agent and all its workers have ended, and no later process
// will use the coordinator's node id.
struct DeathNoticeReceived {
  RoundId round{};
};
// The reply to QueryArbiter. If the arbiter has not answered, `answer` is kNone, and `why` is the reason, for messages. The
// reason contains the arbiter's name.
struct ArbiterAnswered {
  Ballot ballot{};
  BallotAnswer answer = BallotAnswer::kNone;
  std::string why{};
};
// Identifies the process that holds the lock of this node's run directory (see NodeDescription::run_directory).
struct RunDirectoryProbed {
  std::uint64_t holder = 0;
};
// A local event of this node: an event of its workers, a signal, or a request to the key-value store.
struct Local {
  MemberEvent event{};
};
}  // namespace node_event
using NodeEvent =
    std::variant<node_event::Begin, node_event::LinkOpened, node_event::LinkClosed, node_event::FromDialler,
                 node_event::FromListener, node_event::StoreAnswered, node_event::Tick, node_event::DeathNoticeReceived,
                 node_event::ArbiterAnswered, node_event::RunDirectoryProbed, node_event::Local>;

namespace node_action {
// Requests the arbiter's vote for this node. The arbiter votes only once in a round. The shell must reply with ArbiterAnswered
// within a fifth of the lease.
struct QueryArbiter {
  Ballot ballot{};
  NodeId self{};
};
struct Forget {};  // The job has ended for this node, so the caller deletes the node's record.
}  // namespace node_action
using NodeAction = std::variant<node_action::Dial, node_action::ToDialler, node_action::ToListener, node_action::CloseLink,
                                node_action::ServeStore, node_action::QueryArbiter, node_action::Forget, node_action::Finish,
                                coordinator_action::SetDeathNotice, member_action::Remember, member_action::StartWorkers,
                                member_action::ExtendWorkerLease, member_action::StopWorkers, member_action::DismissHeld,
                                StopAndSave, StopAt, StoreAnswer, NodeQuery, JobAnswer, NodeNotice>;

}  // namespace ddprun::rendezvous
