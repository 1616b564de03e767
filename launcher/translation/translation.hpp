// Converts between the types of an agent's decisions (launcher/decide) and those of the job's member on its node
// (rendezvous/member). launcher/network/job_link.cpp transports the results; the simulation of whole agents does the same
// without sockets and processes. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/decide/agent_action.hpp"
#include "launcher/decide/agent_event.hpp"
#include "rendezvous/member/member.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun {

// ---- from the workers here ----

rendezvous::MemberEvent to_member(const agent_action::ReportFailure& action);
// `master_port` is the port that this node reserves for the next round.
rendezvous::MemberEvent to_member(const agent_action::ReportRoundOver& action, std::uint16_t master_port);
rendezvous::MemberEvent to_member(const agent_action::ReportSignal& action);
rendezvous::MemberEvent to_member(const agent_action::ReportSteps& action);

// ---- from the nodes ----

// Escapes a text from another node, which this node shows on its terminal and stores in its report. The text must not move the
// cursor or begin a new line.
std::string from_peer(std::string_view text);
Failure from_peer(Failure failure);

agent_event::RoundReleased to_agent(const rendezvous::Release& release);
// `unanswered_s`: how long the coordinator had not answered.
agent_event::StopOrdered to_agent(const rendezvous::member_action::StopWorkers& action, double unanswered_s);
agent_event::HeldDismissed to_agent(const rendezvous::member_action::DismissHeld& action);
agent_event::SaveOrdered to_agent(const rendezvous::member_action::StopAndSave& action);
agent_event::StepAgreed to_agent(const rendezvous::member_action::StopAt& action);

}  // namespace ddprun
