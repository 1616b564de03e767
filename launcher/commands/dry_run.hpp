// Formats the whole plan as text or JSON, for --dry-run: the commands, their environment, and the source of each value. main()
// calls it instead of starting the job. The code is pure: no I/O, no clock.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/plan.hpp"

namespace ddprun {

using VariableList = std::vector<std::pair<std::string, std::string>>;

// Returns the variables that rank 0 gets in addition to `inherited` (NAME=value). Values that become known only at the start
// are replaced by a description.
VariableList environment_of_rank_0(const Plan& plan, const std::vector<std::string>& inherited);

// `environment`: the variables that rank 0 gets in addition to the environment of the agent.
std::string dry_run_text(const Plan& plan, const VariableList& environment);
std::string dry_run_json(const Plan& plan, const VariableList& environment);

}  // namespace ddprun
