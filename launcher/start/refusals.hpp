// What a start refuses before it makes or starts anything. main() asks for a dry run and for the port of one machine,
// start_training.cpp for the checkpoints of an earlier run. All throw UsageError, and none changes anything.
#pragma once

#include "launcher/plan/plan.hpp"

namespace ddprun {

bool has_checkpoints(const Plan& plan);  // in its run directory

// --resume never over checkpoints would let two histories grow in one folder.
void refuse_to_mix(const Plan& plan);

// A taken master port, where no other will do. It is only tried: the agent takes it for good when a round begins.
void refuse_a_taken_port(const Plan& plan);

// Whatever a start would refuse, as far as that shows without one. For --dry-run. A job on many machines is not asked: its node
// may follow another one that has the directory.
void refuse_what_cannot_run(const Plan& plan);

}  // namespace ddprun
