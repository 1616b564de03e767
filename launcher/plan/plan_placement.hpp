// Placement of each worker on its machine: its CPUs (--numa-binding), its number of threads, and its single device
// (--virtual-local-rank). plan.cpp calls it; the agent and --dry-run read the result.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/plan.hpp"

namespace ddprun {

struct Machine;

// With --virtual-local-rank: the variables that restrict this worker to its own device, by the rule of torchrun 2.15. The
// device is the worker's entry in HIP_VISIBLE_DEVICES if that has entries, else in CUDA_VISIBLE_DEVICES, without spaces. If
// neither is set, the device is the local rank. The result is put in CUDA_VISIBLE_DEVICES, and also in HIP_VISIBLE_DEVICES if
// the entry comes from there. Throws UsageError if there are fewer entries than workers. Pure.
std::vector<WorkerPlace::Variable> only_device_of(
    int local_rank, const std::function<std::optional<std::string>(std::string_view)>& environment);

// Fills in plan.places and plan.threads_per_worker, and explains the result in plan.sources. As under torchrun, several workers
// get one thread each. In a Slurm job they share the CPUs of this agent's task, unless ddprun runs under the name torchrun.
// Throws UsageError.
void place_workers(Plan& plan, const Machine& machine,
                   const std::function<std::optional<std::string>(std::string_view)>& environment);

}  // namespace ddprun
