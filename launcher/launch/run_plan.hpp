// Runs a plan together with its observers: the console, and the report if there is a file for it. start_training.cpp and
// start_script.cpp call it last, after the folders are created.
#pragma once

#include <optional>

#include "launcher/agent/agent.hpp"
#include "launcher/network/network_start.hpp"
#include "launcher/output/console.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/report/report.hpp"

namespace ddprun {

// Returns the exit code. The console shows `facts.opening` at the start, with any warning about the earlier report.
// `at_end` is passed to run_agent().
int run_plan(const Plan& plan, const AgentFiles& files, ConsoleFacts facts, std::optional<NetworkStart> network,
             ReportFacts::Kept kept = ReportFacts::Kept::kAlways, const AtEnd& at_end = {});

}  // namespace ddprun
