// What the scheduler that started this agent says of the job's machines: a Slurm step with an agent on each of its nodes, or a
// pod of a Kubernetes indexed Job. Such values come behind what somebody gave by flag or variable and before the defaults, so
// that `srun ddprun train.json` needs no flags. Called by main(); not under the name torchrun, which knows no scheduler.
// Variables: srun(1), "OUTPUT ENVIRONMENT VARIABLES"; Kubernetes, "Indexed Job for Parallel Processing" and "Job with
// Pod-to-Pod Communication".
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"

namespace ddprun {

struct SchedulerSettings {
  std::vector<std::pair<std::string, Setting>> values;  // by option; none that was given
  std::vector<std::string> warnings;                    // probably a mistake
};

// Pure. `full_host_name`: this machine's name with its domain; asked in a pod only. Throws UsageError: a step with several
// agents on a node, a list of nodes that can't be read, a pod that has no name which others could find.
SchedulerSettings scheduler_settings(const Settings& given, const Environment& environment,
                                     const std::function<std::string()>& full_host_name);

// The same with this machine's name, written into `arguments`.
void adopt_scheduler_settings(Arguments& arguments, const Environment& environment);

}  // namespace ddprun
