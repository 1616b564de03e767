// Converts a plan into the settings of the state machine, of the workers' output and of the hang detection.
#pragma once

#include "launcher/agent/agent.hpp"
#include "launcher/agent_state/agent_state.hpp"
#include "launcher/hang/hang_monitor.hpp"
#include "launcher/output/worker_output.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Converts the plan. Reads the log folder, because the rounds of all calls of ddprun are numbered continuously.
AgentSettings agent_settings(const Plan& plan, const AgentFiles& files, AgentSettings::Mode mode);
WorkerOutputSettings output_settings(const Plan& plan, const AgentFiles& files);
HangSettings hang_settings(const Plan& plan);

}  // namespace ddprun
