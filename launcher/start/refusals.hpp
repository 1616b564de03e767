// Checks that make a start fail before it creates or starts anything. main() calls them for a dry run and for the port of one
// machine, start_training.cpp for the checkpoints of an earlier run. All functions throw UsageError and change nothing.
#pragma once

#include "launcher/plan/plan.hpp"

namespace ddprun {

bool has_checkpoints(const Plan& plan);  // whether the run directory has checkpoints

// Refuses --resume never if there are checkpoints: the folder would contain two histories.
void refuse_to_mix(const Plan& plan);

// Refuses a master port that is in use and cannot be replaced. The port is only probed; the agent reserves it when a round
// begins.
void refuse_a_taken_port(const Plan& plan);

// For --dry-run: refuses everything that a start would refuse, as far as it can be detected without a start. It checks the
// files that the config names, and the run directory. In a multi-node job the directory is not checked, since another node may
// have it.
void refuse_what_cannot_run(const Plan& plan);

}  // namespace ddprun
