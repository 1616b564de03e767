// What the scheduler that started this agent says about the job's machines: a Slurm step with an agent on each of its nodes, or
// a pod of a Kubernetes indexed Job. Flags and variables win over such values, and such values win over defaults, so `srun
// ddprun train.json` needs no flags. main() calls it, but not under the name torchrun, which knows no scheduler. Variables:
// srun(1), "OUTPUT ENVIRONMENT VARIABLES"; Kubernetes, "Indexed Job for Parallel Processing" and "Job with Pod-to-Pod
// Communication".
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"

namespace ddprun {

struct SchedulerSettings {
  std::vector<std::pair<std::string, Setting>> values;  // by option; never one that the user gave
  std::vector<std::string> warnings;                    // about values that are probably mistakes
};

// Pure. `full_host_name` returns this machine's name with its domain; it is called in a pod only. Throws UsageError for a step
// with several agents on a node, a node list that can't be read, and a pod without a name by which others could find it.
SchedulerSettings scheduler_settings(const Settings& given, const Environment& environment,
                                     const std::function<std::string()>& full_host_name);

// The same with this machine's name; the values are written into `arguments`.
void adopt_scheduler_settings(Arguments& arguments, const Environment& environment);

}  // namespace ddprun
