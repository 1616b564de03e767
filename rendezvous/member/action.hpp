// Actions of a member, as values: for the agent (workers, the record), and for the node's links. Member::on() returns them in
// the order in which they must be carried out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/member/record.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

namespace member_action {
struct Dial {  // the result is Opened or Closed
  LinkId link = 0;
  Address address{};
};
struct Send {
  LinkId link = 0;
  FromMember message{};
};
struct Close {
  LinkId link = 0;
};
struct Remember {
  Record record{};
  NodeId node{};  // the node id of the leader
};
struct StartWorkers {
  Release release{};
  Time until{};  // the grant, as in ExtendGrant
};
// Workers may run until this time. If the grant is not extended, the guardian must kill them then, even if this agent is
// stopped: another coordinator may lead from then on.
struct ExtendGrant {
  Time until{};
};
struct StopWorkers {
  enum class Reason { kWorkerFailure, kMembershipChange, kCoordinatorLost, kJobOver };
  RoundId round{};
  Reason reason{};
  bool at_once = false;  // by SIGKILL
  std::string why{};
  std::optional<FailureReport> failure{};  // kWorkerFailure: the failure of another node's worker
  bool hold = false;  // workers that can keep their state may wait for the next round, as reported in WorkersEnded
};
// A worker of this node has failed: drop the state that the other workers hold for the next round.
struct DismissHeld {
  std::string why{};
};
struct StopAndSave {
  int signal = 0;
  bool held = false;  // the workers that wait for a next round save, since there will be none; if no workers wait, WorkersEnded
                      // follows immediately
};
struct StopAt {
  std::int64_t step = 0;
};
struct AnswerStore {
  std::int32_t rank = 0;
  channel::StoreReply reply{};
};
// A query to all nodes of the job. Reply with AnswerQuestion.
struct BeAsked {
  NodeQuestion question{};
};
// A node's answer to this node's AskJob.
struct HearAnswer {
  JobAnswer answer{};
};
struct Say {
  NodeNotice notice{};
};
struct JobOver {  // the workers are gone
  enum class End {
    kOver,     // the job has ended, or this node was notified that it has
    kLeft,     // this node has left, and the others continue
    kGivenUp,  // this process has found no other node, or was refused
  };
  int exit_code = 0;
  std::string why{};
  End end = End::kOver;
};
}  // namespace member_action
using MemberAction =
    std::variant<member_action::Dial, member_action::Send, member_action::Close, member_action::Remember,
                 member_action::StartWorkers, member_action::ExtendGrant, member_action::StopWorkers,
                 member_action::DismissHeld, member_action::StopAndSave, member_action::StopAt, member_action::AnswerStore,
                 member_action::BeAsked, member_action::HearAnswer, member_action::Say, member_action::JobOver>;
using MemberActions = std::vector<MemberAction>;

// The end of the job for a node that has searched for a coordinator for `looked` without result. `was_welcome`: a coordinator
// had accepted this process before.
member_action::JobOver end_of_search(const Record& record, bool was_welcome, milliseconds looked);

}  // namespace ddprun::rendezvous
