// `ddprun status`, `logs` and `stop` with --slurm: the user starts them on the login node, and the job runs on compute nodes.
// The subcommands call answer_of_slurm_job() first (chosen_job.hpp), which calls run_in_slurm_job().
#pragma once

#include <string>
#include <vector>

namespace ddprun {

// Runs the subcommand on a node of the job, in a step that shares the job's resources. If the job runs, this process becomes
// `srun --overlap`, and the function does not return. If the job waits in the queue, the function returns: `status` prints the
// state of the job, and `stop` cancels the job. Throws UsageError if the job is unknown, or for `logs` of a queued job.
//
// `job`: a Slurm job id, or a run directory. `options`: the other options of the subcommand, such as "--rank=3".
int run_in_slurm_job(const std::string& job, const std::string& subcommand, const std::vector<std::string>& options);

}  // namespace ddprun
