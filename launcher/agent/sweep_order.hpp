// Converts AgentState's order to end a round's leftovers into the guardian's type. agent_shell.cpp sends it.
#pragma once

#include "launcher/decide/agent_action.hpp"
#include "launcher/guardian/guardian_protocol.hpp"

namespace ddprun {

inline guardian::SweepState::Order sweep_order(const agent_action::Sweep& action) {
  using From = agent_action::Sweep::How;
  using To = guardian::SweepState::How;
  To how = To::kKill;
  if (action.how == From::kStop) how = To::kStop;
  if (action.how == From::kEnd) how = To::kEnd;
  if (action.how == From::kDone) how = To::kDone;
  return {.how = how, .timeout = action.timeout, .next_round = action.next_round};
}

}  // namespace ddprun
