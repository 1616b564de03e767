// What a start refuses before it makes or starts anything. main() calls it for a dry run and for the port of one machine,
// start_training.cpp for the checkpoints of an earlier run. All functions throw UsageError and change nothing.
#pragma once

#include "launcher/plan/plan.hpp"

namespace ddprun {

bool has_checkpoints(const Plan& plan);  // in its run directory

// Refuses --resume never when there are checkpoints: two histories would grow in one folder.
void refuse_to_mix(const Plan& plan);

// Refuses a master port that is taken and cannot be replaced. The port is only tried: the agent reserves it when a round
// begins.
void refuse_a_taken_port(const Plan& plan);

// Refuses what a start would refuse, as far as that can be seen without one. For --dry-run. It looks at the files that the
// config names, and at the run directory. Of a job on many machines it skips the directory, since another node may have it.
void refuse_what_cannot_run(const Plan& plan);

}  // namespace ddprun
