// Starts the job of a script, module or program: makes the folders for its logs, takes the run directory if it has one, or
// follows the agent that has it, and runs the plan. main() calls it after everything that needs no folder was refused.
#pragma once

#include <optional>

#include "launcher/network/network_start.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Returns the exit code. `environment` is asked for TMPDIR and the like. `network` is set for a job on many machines. Throws
// UsageError when a folder that the user named cannot be used.
int start_script(const Plan& plan, const Environment& environment, std::optional<NetworkStart> network);

}  // namespace ddprun
