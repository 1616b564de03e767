// Derives settings from a plan: for the state machine, the workers' output and the watch for hangs.
#pragma once

#include "launcher/agent/agent.hpp"
#include "launcher/decide/agent_state.hpp"
#include "launcher/hang/hang_inquiry.hpp"
#include "launcher/output/worker_output.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Reads the numbers of earlier rounds from the log folder.
AgentSettings agent_settings(const Plan& plan, const AgentFiles& files, AgentSettings::Mode mode);
WorkerOutputSettings output_settings(const Plan& plan, const AgentFiles& files);
HangSettings hang_settings(const Plan& plan);

}  // namespace ddprun
