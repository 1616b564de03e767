// The actions of `ddprun submit --slurm`: it writes the batch file and submits it with sbatch. Later the batch file calls the
// same subcommand with --after, which requeues the job or ends it. subcommand_submit.cpp uses it. The calls block, and print
// their results.
#pragma once

#include "launcher/submit/slurm/slurm_request.hpp"

namespace ddprun {

// Returns the exit code. Throws UsageError if the command line cannot work, or if sbatch fails. The batch file then remains.
int submit_to_slurm(SubmitWords words);

// Runs at the end of the batch script. Returns its exit code. After a successful `scontrol requeue`, Slurm kills the script.
int decide_after_slurm_job(const SubmitWords& words);

}  // namespace ddprun
