// `ddprun logs` of a job on several machines: each node reads the log files of its own workers, and this asks one after the
// other, or follows all at once. subcommand_logs.cpp calls it, and reads the files of a single machine itself. It blocks.
#pragma once

#include "launcher/commands/chosen_job.hpp"

namespace ddprun {

enum class LogsShown {
  kNone,  // no node answers, and nothing was printed
  kPart,  // what is missing was said on stderr
  kAll,
};

// Prints them; with -f until the job ends. Throws UsageError when the job
// writes no log files, has no such rank, or has too many nodes to follow.
LogsShown show_logs_of_nodes(const RunningJob& job, const JobRequest& request);

}  // namespace ddprun
