// Reads the output of Slurm's commands about one job. slurm_commands.cpp runs the commands. The code is pure: no I/O, no
// clock.
//
// A job array needs care. Each task of the array has its own job id, but the last task that starts has the id of the whole
// array. If the array is job 17, `scontrol requeue 17` requeues all tasks, and `scontrol show job 17` prints all of them. A
// task is therefore always named ARRAY_TASK, such as 17_3.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/options.hpp"

namespace ddprun {

// Returns true for a job id or a task of a job array: 17 or 17_3.
bool is_slurm_job(std::string_view word);

// Returns the id of the job in whose batch script this process runs, as Slurm's commands expect it:
// SLURM_ARRAY_JOB_ID_SLURM_ARRAY_TASK_ID, or SLURM_JOB_ID. Returns nullopt if this process does not run under Slurm.
std::optional<std::string> slurm_job_of(const Environment& environment);

struct SlurmJobState {
  bool requeue_allowed = true;         // Requeue=1
  std::optional<double> seconds_left;  // seconds from RunTime to TimeLimit; nullopt if there is no limit, or if it is unknown
};
// Parses the output of `scontrol show job -o`.
SlurmJobState parse_scontrol_job(std::string_view text);

// One line of `squeue --noheader --format "%i|%A|%T|%r|%o"`.
struct QueuedJob {
  std::string id;       // such as 17, or 17_3 for a task of an array
  std::string number;   // the job id of the task itself, as srun needs it
  std::string state;    // RUNNING, PENDING, ...
  std::string reason;   // why a pending job waits
  std::string command;  // path of the batch file
};
inline constexpr const char* kSqueueFormat = "%i|%A|%T|%r|%o";
std::vector<QueuedJob> parse_squeue(std::string_view text);

// Returns the job id in the output of `sbatch --parsable`: 17 for "17" or "17;cluster". Returns nullopt for any other text.
std::optional<std::string> parse_sbatch(std::string_view text);

// Returns the first line of a program's error output, without the name of the program, for a message of one line.
std::string first_error_line(std::string_view text);

}  // namespace ddprun
