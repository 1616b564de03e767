// What a member wants done, as values: of the agent (workers, the record), and of the node's links. Member::on() returns them
// in the order in which they are to be carried out.
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
struct Dial {  // answer with Opened or Closed
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
  NodeId node{};  // whose it is
};
struct StartWorkers {
  Release release{};
  Time until{};  // as ExtendGrant
};
// Workers may run until then and must be killed at that time by whatever watches them, this agent stopped or not, unless it is
// extended: by then somebody else may lead.
struct ExtendGrant {
  Time until{};
};
struct StopWorkers {
  enum class Reason { kWorkerFailure, kMembershipChange, kCoordinatorLost, kJobOver };
  RoundId round{};
  Reason reason{};
  bool at_once = false;  // SIGKILL
  std::string why{};
  std::optional<FailureReport> failure{};  // kWorkerFailure: of another node's worker
  bool hold = false;                       // those that can wait for the next round with their state may do so: WorkersEnded
};
// Workers that wait for the next round, for a failure of this node's own, have a state that is not to be kept.
struct DismissHeld {
  std::string why{};
};
struct StopAndSave {
  int signal = 0;
  bool held = false;  // the workers that wait for the next round save, which does not come; WorkersEnded follows at once where
                      // there are none
};
struct StopAt {
  std::int64_t step = 0;
};
struct AnswerStore {
  std::int32_t rank = 0;
  channel::StoreReply reply{};
};
struct GotJob {  // ddprun join: config, arguments and options
  std::string job{};
};
struct Say {
  NodeNotice notice{};
};
struct JobOver {  // the workers are gone
  enum class End {
    kOver,     // the job's, or this node was told so
    kLeft,     // this node's: it said goodbye, and the others go on
    kGivenUp,  // this process's: it found nobody, or was refused
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
                 member_action::GotJob, member_action::Say, member_action::JobOver>;
using MemberActions = std::vector<MemberAction>;

// How it ends for a node that has looked for a coordinator for so long, in vain. `was_welcome`: by one, in this process.
member_action::JobOver end_of_search(const Record& record, bool was_welcome, milliseconds looked);

}  // namespace ddprun::rendezvous
