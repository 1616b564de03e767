// Reads the job's machines from the scheduler that started this agent. It supports Slurm steps and Open MPI's mpirun, with one
// agent on each node. It also supports pods of a Kubernetes indexed Job, and tasks of SkyPilot or dstack on several nodes.
// `srun ddprun train.json` therefore needs no options. Command line and variables take precedence over these values, and these
// values take precedence over defaults. main() calls this code, except under the name torchrun, since torchrun uses no values
// of a scheduler.
//
// Several jobs may share a node: two small jobs, the tasks of a job array, or two steps of a job. Their agents must not use
// the same ports. So the default port of a job on several nodes depends on its job id and step id (port_of_slurm_step()).
// Sources of the variables: srun(1), "OUTPUT ENVIRONMENT VARIABLES"; Kubernetes, "Indexed Job for Parallel Processing" and
// "Job with Pod-to-Pod Communication"; SkyPilot, "Distributed Multi-Node Jobs"; dstack, "Distributed tasks"; mpirun(1),
// "Environment Variables".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"

namespace ddprun {

// Returns the port of a Slurm step, a number from `low` to `high`. All nodes can compute it without a query. Steps of jobs
// with similar ids have different ports. Two steps with the same step id rarely have the same port: their job ids must differ
// by a multiple of high - low + 1. The code is pure: no I/O, no clock.
int port_of_slurm_step(std::int64_t job, std::int64_t step, int low, int high);

struct SchedulerSettings {
  std::vector<std::pair<std::string, Setting>> values;  // option name and value; only options that the user did not give
  std::vector<std::string> warnings;                    // probable mistakes
};

// Returns the values from the scheduler. `full_host_name` returns this machine's name with its domain; it is called only in a
// pod. Throws UsageError if several agents run on a node, or if a node list is unreadable. Also throws it if the address of
// the first node is unknown, or if a rank is not below the number of nodes. The code is pure: no I/O, no clock.
SchedulerSettings scheduler_settings(const Settings& given, const Environment& environment,
                                     const std::function<std::string()>& full_host_name);

// Calls scheduler_settings() with this machine's host name, and adds the values and warnings to `arguments`.
void adopt_scheduler_settings(Arguments& arguments, const Environment& environment);

}  // namespace ddprun
