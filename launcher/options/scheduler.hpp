// Reads what the scheduler that started this agent provides about the job's machines: a Slurm step with an agent on each of its
// nodes, or a pod of a Kubernetes indexed Job. Flags and variables take precedence over these values, and these values over
// defaults, so `srun ddprun train.json` needs no flags. main() calls it, except under the name torchrun, since torchrun knows
// no scheduler. Variables: srun(1), "OUTPUT ENVIRONMENT VARIABLES"; Kubernetes, "Indexed Job for Parallel Processing" and "Job
// with Pod-to-Pod Communication".
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"

namespace ddprun {

struct SchedulerSettings {
  std::vector<std::pair<std::string, Setting>> values;  // option name and value; never an option that the user gave
  std::vector<std::string> warnings;                    // warnings about values that are probably mistakes
};

// Pure. `full_host_name` returns this machine's name with its domain; it is called only in a pod. Throws UsageError for a step
// with several agents on a node, for an unreadable node list, and for a pod without a name at which other pods could reach it.
SchedulerSettings scheduler_settings(const Settings& given, const Environment& environment,
                                     const std::function<std::string()>& full_host_name);

// The same, with this machine's name. The values are written into `arguments`.
void adopt_scheduler_settings(Arguments& arguments, const Environment& environment);

}  // namespace ddprun
