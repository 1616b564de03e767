// Starts a job that runs a script, module or program. It creates the log folders and runs the plan. If there is a run
// directory, it locks the directory, or follows the agent that holds the lock. main() calls it after all checks that need no
// folder.
#pragma once

#include <optional>

#include "launcher/network/network_start.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Returns the exit code. `environment` is queried for TMPDIR and similar variables. `network` is set for a multi-node job.
// Throws UsageError if a folder that the user named cannot be used.
int start_script(const Plan& plan, const Environment& environment, std::optional<NetworkStart> network);

}  // namespace ddprun
