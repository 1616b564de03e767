// Checks that refuse a job before anything is created or started. main() calls them for a dry run, and to check the master
// port of a job on one machine. start_training.cpp calls them to check for checkpoints of an earlier run. The refuse_...()
// functions throw UsageError if they refuse the job. No function in this header changes anything.
#pragma once

#include "launcher/plan/plan.hpp"

namespace ddprun {

bool has_checkpoints(const Plan& plan);  // true if the run directory has checkpoints

// Refuses `--resume never` if there are checkpoints: the folder would then contain checkpoints of two different trainings.
void refuse_mixed_history(const Plan& plan);

// Refuses a master port that is in use, if no other port may replace it. This function only probes the port; the agent
// reserves the port when a round starts.
void refuse_taken_port(const Plan& plan);

// For --dry-run: makes those checks of a real run that are possible without starting anything. It checks the files that the
// config names, and the run directory. In a multi-node job the directory is not checked, since it may be on another node.
void refuse_invalid_start(const Plan& plan);

}  // namespace ddprun
