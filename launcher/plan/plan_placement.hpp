// Chooses the number, the device and the standard input of the workers on this machine. Then chooses the CPUs (--numa-binding),
// the number of threads and the visible GPU (--virtual-local-rank) of each worker. plan.cpp calls these functions; the agent
// and --dry-run use the result.
#pragma once

#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

struct Machine;

// Throws UsageError if --nproc-per-node is given, and no machine could accept its value. Does not query the machine.
void check_worker_count(const Settings& settings);

// Chooses the number of workers and their device, from --nproc-per-node and the train.json. Throws UsageError if the number of
// workers exceeds the number of GPUs or the batch size.
void choose_workers(Plan& plan, const Settings& settings, const Machine& machine, const Environment& environment);

// Chooses the workers' standard input. Call this after choose_workers(), because the choice depends on the number of workers.
void choose_input(Plan& plan, const Machine& machine);

// Returns the variables that make only one GPU visible to a worker (--virtual-local-rank), by the rule of torchrun 2.15. The
// GPU is entry number `local_rank` of HIP_VISIBLE_DEVICES, or of CUDA_VISIBLE_DEVICES if the first variable is empty or not
// set. If neither is set, the GPU is the one whose index is the local rank. The result sets CUDA_VISIBLE_DEVICES, and also
// HIP_VISIBLE_DEVICES if that was the source. Throws UsageError if the list is too short. The code is pure: no I/O, no clock.
std::vector<WorkerPlace::Variable> only_device_of(int local_rank, const Environment& environment);

// Reads --virtual-local-rank and --numa-binding into the plan.
void choose_placement(Plan& plan, const Settings& settings);

// Sets plan.places and plan.threads_per_worker and records their sources. If there are several workers, each gets one thread,
// as under torchrun. In a Slurm job they instead share the CPUs of the task, unless ddprun was started under the name torchrun.
// Throws UsageError.
void place_workers(Plan& plan, const Machine& machine, const Environment& environment);

}  // namespace ddprun
