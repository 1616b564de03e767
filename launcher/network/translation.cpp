#include "launcher/network/translation.hpp"

#include <utility>

#include "common/base/printable.hpp"
#include "launcher/restart_policy/job_judge.hpp"

namespace ddprun {

namespace member_event = rendezvous::member_event;
namespace member_action = rendezvous::member_action;

// ---- actions of AgentState, as events for the member ----

rendezvous::MemberEvent to_member(const agent_action::ReportFailure& action) {
  rendezvous::FailureReport report = report_of(action.failure, action.record);
  report.others_stay = action.others_stay;
  return report;
}

rendezvous::MemberEvent to_member(const agent_action::ReportRoundOver& action, std::uint16_t master_port) {
  using How = agent_action::ReportRoundOver::How;
  if (action.how == How::kDone) return member_event::WorkersDone{master_port};
  return member_event::WorkersEnded{action.how == How::kSaved, master_port, action.leaves_with, action.holds};
}

rendezvous::MemberEvent to_member(const agent_action::ReportSignal& action) {
  return rendezvous::StopRequest{action.signal, action.saves};
}

rendezvous::MemberEvent to_member(const agent_action::ReportSteps& action) {
  return rendezvous::StopReady{.started = action.started};
}

// ---- messages from other nodes, as events for AgentState ----

std::string from_peer(std::string_view text) {
  return printable(text);
}

Failure from_peer(Failure failure) {
  failure.host = from_peer(failure.host);
  std::string message = printable(failure.message, LineEnds::kKeep);  // line ends are kept, since a traceback has several lines
  for (std::size_t at = message.find('\n'); at != std::string::npos; at = message.find('\n', at + 1))
    message.insert(at + 1, "    ");
  failure.message = std::move(message);
  return failure;
}

agent_event::RoundReleased to_agent(const rendezvous::Release& release) {
  return {.round = static_cast<int>(release.id.round),
          .restart_count = release.budget.restart_count,
          .rank_offset = release.rank_offset,
          .world_size = release.world_size,
          .group_rank = release.group_rank,
          .nodes = release.nodes,
          .first_number = release.budget.first_number};
}

agent_event::StopOrdered to_agent(const member_action::StopWorkers& action, double unanswered_s) {
  using Reason = member_action::StopWorkers::Reason;
  agent_event::StopOrdered order{
      .immediately = action.immediately, .why = from_peer(action.why), .failure = {}, .unanswered_s = {}, .hold = action.hold};
  if (action.failure) order.failure = from_peer(failure_of(*action.failure));
  if (action.reason == Reason::kCoordinatorLost && action.immediately) order.unanswered_s = unanswered_s;
  return order;
}

agent_event::HeldDismissed to_agent(const member_action::DismissHeld& action) {
  return {from_peer(action.why)};
}

agent_event::SaveOrdered to_agent(const rendezvous::StopAndSave& action) {
  return {.signal = action.signal, .held = action.held};
}

agent_event::StepAgreed to_agent(const rendezvous::StopAt& action) {
  return {action.step};
}

}  // namespace ddprun
