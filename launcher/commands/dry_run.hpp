// The whole plan as text or JSON, for --dry-run: what would be started, with which environment, and where each value came from.
// main() calls it instead of starting the job. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/plan.hpp"

namespace ddprun {

using VariableList = std::vector<std::pair<std::string, std::string>>;

// What rank 0 gets on top of `inherited` (NAME=value), with words in place of what is decided at the start.
VariableList environment_of_rank_0(const Plan& plan, const std::vector<std::string>& inherited);

// `environment`: what rank 0 gets on top of the agent's own environment.
std::string dry_run_text(const Plan& plan, const VariableList& environment);
std::string dry_run_json(const Plan& plan, const VariableList& environment);

}  // namespace ddprun
