// Converts actions of an agent's state machine (launcher/agent_state) to events of the member on its node (rendezvous/member).
// Also converts actions of the member to events of the agent. launcher/network/job_link.cpp passes the results on. The
// simulation of whole agents uses the same functions without sockets and processes. The code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/agent_state/agent_action.hpp"
#include "launcher/agent_state/agent_event.hpp"
#include "rendezvous/member/member.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun {

// ---- actions of AgentState, as events for the member ----

rendezvous::MemberEvent to_member(const agent_action::ReportFailure& action);
// `master_port` is the port that this node has reserved for the next round.
rendezvous::MemberEvent to_member(const agent_action::ReportRoundOver& action, std::uint16_t master_port);
rendezvous::MemberEvent to_member(const agent_action::ReportSignal& action);
rendezvous::MemberEvent to_member(const agent_action::ReportSteps& action);

// ---- messages from other nodes, as events for AgentState ----

// Escapes a text from another node before this node prints it and stores it in its report. The text must not be able to move
// the cursor or start a new line.
std::string from_peer(std::string_view text);
Failure from_peer(Failure failure);

agent_event::RoundReleased to_agent(const rendezvous::Release& release);
// `unanswered_s` is the number of seconds for which the coordinator had not answered.
agent_event::StopOrdered to_agent(const rendezvous::member_action::StopWorkers& action, double unanswered_s);
agent_event::HeldDismissed to_agent(const rendezvous::member_action::DismissHeld& action);
agent_event::SaveOrdered to_agent(const rendezvous::StopAndSave& action);
agent_event::StepAgreed to_agent(const rendezvous::StopAt& action);

}  // namespace ddprun
