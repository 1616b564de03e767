// Runs Slurm's commands, such as sbatch and squeue. slurm_submission.cpp and slurm_login.cpp use it. The calls block.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

struct SlurmAnswer {
  bool succeeded = false;
  std::string text;     // standard output
  std::string problem;  // one line if it failed, such as "sbatch failed: Invalid partition name specified"
};

// Runs a Slurm command, which must be on PATH. The command may run for two minutes and write 1 MiB.
SlurmAnswer run_slurm(const std::vector<std::string>& command);

// Absolute path of this program, which the compute nodes use as well.
std::string path_of_this_program();

}  // namespace ddprun
