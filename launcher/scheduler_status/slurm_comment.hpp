// The progress of a job as the comment of its Slurm job, which `scontrol show job` and `squeue -o %k` show. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/events/progress.hpp"
#include "launcher/options/options.hpp"

namespace ddprun {

// Returns the Slurm job whose comment may show the progress. nullopt outside of Slurm, and if the user has set a comment
// (SLURM_JOB_COMMENT, since Slurm 23.02).
std::optional<std::string> slurm_job_without_comment(const Environment& environment);

// "ddprun: epoch 2/3, step 512/1,407, loss 0.3412, 32 s left". Contains only characters that need no quotes for scontrol.
std::string slurm_comment(const ProgressShown& progress);

// The command that sets the comment.
std::vector<std::string> slurm_comment_command(const std::string& job, const ProgressShown& progress);

}  // namespace ddprun
