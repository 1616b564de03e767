// The actions of a member (the agent as a follower of the coordinator), as plain values. An action is a request to change the
// workers, the record on disk, or the node's links. Member::on() returns the actions in the order in which they must be
// carried out.
//
// Some actions are messages of the coordinator that the member forwards:
//     StopAndSave      Let the workers save their state, and then end them. If `held` is set, no further round follows, and
//                      only held workers save. (Held workers have kept their state and wait for the next round.) The agent
//                      answers with WorkersEnded. If it has no workers, it answers immediately.
//     StopAt           Save after this step.
//     StoreAnswer      The reply to a worker's StoreQuery.
//     NodeQuery        A query to all nodes of the job. The agent answers with NodeAnswer.
//     JobAnswer        A node's answer to a ClusterQuery of this node.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/member/record.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/node_io.hpp"

namespace ddprun::rendezvous {

namespace member_action {
struct Remember {
  Record record{};
  NodeId node{};  // the node to which the record belongs
};
struct StartWorkers {
  Release release{};
  Time until{};  // end of the worker lease; at this time the workers are killed, unless ExtendWorkerLease follows
};
// The workers may run until this time. If no further extension arrives, the guardian process kills the workers at this time,
// even if this agent is suspended (SIGSTOP). After that time another coordinator may lead.
struct ExtendWorkerLease {
  Time until{};
};
struct StopWorkers {
  enum class Reason { kWorkerFailure, kMembershipChange, kCoordinatorLost, kJobOver };
  RoundId round{};
  Reason reason{};
  bool immediately = false;  // if true, the workers are killed with SIGKILL
  std::string why{};
  std::optional<FailureReport> failure{};  // set if `reason` is kWorkerFailure; the failure occurred on another node
  bool hold = false;                       // if true, workers whose state is valid keep it and wait for the next round
};
// The held workers must exit, and their state is discarded. The next round starts new workers on every node.
struct DismissHeld {
  std::string why{};
};
}  // namespace member_action
using MemberAction = std::variant<node_action::Dial, node_action::ToListener, node_action::CloseLink, node_action::Finish,
                                  member_action::Remember, member_action::StartWorkers, member_action::ExtendWorkerLease,
                                  member_action::StopWorkers, member_action::DismissHeld, StopAndSave, StopAt, StoreAnswer,
                                  NodeQuery, JobAnswer, NodeNotice>;
using MemberActions = std::vector<MemberAction>;

}  // namespace ddprun::rendezvous
