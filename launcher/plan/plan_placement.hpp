// Where each worker runs on its machine: the CPUs that --numa-binding gives it, its number of threads, and the one device that
// --virtual-local-rank leaves it. plan.cpp calls it; the agent and --dry-run read the result.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/plan.hpp"

namespace ddprun {

struct Machine;

// With --virtual-local-rank: the variables that make this worker see only its own device, by the rule of torchrun 2.15. The
// device is the worker's entry of HIP_VISIBLE_DEVICES if that has any, else of CUDA_VISIBLE_DEVICES, without spaces; if neither
// is set, it is the local rank. It becomes CUDA_VISIBLE_DEVICES, and also HIP_VISIBLE_DEVICES if the entry comes from there.
// Throws UsageError when there are fewer entries than workers. Pure.
std::vector<WorkerPlace::Variable> only_device_of(
    int local_rank, const std::function<std::optional<std::string>(std::string_view)>& environment);

// Fills in plan.places and plan.threads_per_worker, and explains the result in plan.sources. As under torchrun, several workers
// get one thread each; in a Slurm job they share the CPUs of this agent's task, unless the name is torchrun. Throws UsageError.
void place_workers(Plan& plan, const Machine& machine,
                   const std::function<std::optional<std::string>(std::string_view)>& environment);

}  // namespace ddprun
