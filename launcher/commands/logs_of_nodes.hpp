// `ddprun logs` for a job on several machines. Each node reads the log files of the workers on it; this module queries the
// nodes one after the other, or follows all at the same time. subcommand_logs.cpp calls it, and reads the files of a single
// machine itself. The calls block.
#pragma once

#include "launcher/commands/chosen_job.hpp"

namespace ddprun {

enum class LogsShown {
  kNone,  // no node answered, and nothing was printed
  kPart,  // some logs are missing, and a message on stderr gives the reason
  kAll,
};

// Prints the logs; with -f until the job ends. Throws UsageError if the job writes no log files, has no worker with the
// requested rank, or has too many nodes to follow.
LogsShown show_logs_of_nodes(const RunningJob& job, const JobRequest& request);

}  // namespace ddprun
