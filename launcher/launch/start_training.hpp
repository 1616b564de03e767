// Starts the training job that a train.json describes. It opens the run directory, or follows the agent that has opened it, and
// runs the plan. main() calls it after all checks that need no directory.
#pragma once

#include <optional>

#include "launcher/network/network_start.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Returns the exit code. If the run is already complete, it prints a line on stdout and returns 0 immediately. Throws
// UsageError if the directory cannot be used. `network` is set for a multi-node job.
int start_training(const Plan& plan, std::optional<NetworkStart> network);

}  // namespace ddprun
