// Where on its machine each worker runs, decided with the plan: the CPUs that --numa-binding gives it and the one device that
// --virtual-local-rank leaves it. plan.cpp calls it last; the agent and --dry-run read the result.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/plan.hpp"

namespace ddprun {

struct Machine;

// With --virtual-local-rank: the variables by which this worker sees only its own device, torchrun 2.15's rule: its entry of
// HIP_VISIBLE_DEVICES when that names any, else of CUDA_VISIBLE_DEVICES, without spaces; when neither is set, the local rank.
// Told as CUDA_VISIBLE_DEVICES, and as HIP_VISIBLE_DEVICES too when the entry is from there. Throws UsageError when there are
// fewer entries than workers. Pure.
std::vector<WorkerPlace::Variable> only_device_of(
    int local_rank, const std::function<std::optional<std::string>(std::string_view)>& environment);

// Fills plan.places, and says in plan.sources what became of it. Throws UsageError.
void place_workers(Plan& plan, const Machine& machine,
                   const std::function<std::optional<std::string>(std::string_view)>& environment);

}  // namespace ddprun
