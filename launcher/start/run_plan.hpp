// Runs a plan and those who watch it: the console, and the report where there is a file for it. start_training.cpp and
// start_script.cpp call it last, once the folders are there.
#pragma once

#include <optional>

#include "launcher/agent/agent.hpp"
#include "launcher/network/network_start.hpp"
#include "launcher/output/console.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/report/report.hpp"

namespace ddprun {

// Returns the exit code. `facts.opening`: what the console says at the start; a warning about the report found there is added.
// `at_end` as run_agent() has it.
int run_plan(const Plan& plan, const AgentFiles& files, ConsoleFacts facts, std::optional<NetworkStart> network,
             ReportFacts::Kept kept = ReportFacts::Kept::kAlways, const AtEnd& at_end = {});

}  // namespace ddprun
