// Formats the progress of a job as the comment of its Slurm job, which `scontrol show job` and `squeue -o %k` show. The code
// is pure: no I/O, no clock.
#pragma once

#include <string>
#include <string_view>

#include "launcher/events/progress.hpp"

namespace ddprun {

// Returns a text such as "ddprun: epoch 2/3, step 512/1,407, loss 0.3412, 32 s left". The text contains only characters that
// need no quotes for scontrol.
std::string slurm_comment(const ProgressShown& progress);

// Returns true if the output of `scontrol show job` has no comment, or a comment that slurm_comment() has created. A comment
// of the user is kept, because some sites read it.
bool may_set_slurm_comment(std::string_view scontrol_job);

}  // namespace ddprun
