// Starts the job of a train.json: opens its run directory, or follows the agent that has it, and runs the plan. main() calls it
// after everything that needs no directory was refused.
#pragma once

#include <optional>

#include "launcher/network/network_start.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Returns the exit code; 0 at once, with a line on stdout, when the run is done already. Throws UsageError when the directory
// cannot be used. `network` is set for a job on many machines.
int start_training(const Plan& plan, std::optional<NetworkStart> network);

}  // namespace ddprun
