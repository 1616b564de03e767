// Adds the GPU use of a running job's workers to their status, for `status` and `top`. Blocks for at most two seconds.
#pragma once

#include <nlohmann/json.hpp>

#include "launcher/commands/chosen_job.hpp"
#include "launcher/commands/job_nodes.hpp"

namespace ddprun {

// Adds "gpu" to each worker of `status`. It is the device on which the worker's process computes. If that is unknown, it is the
// device at its local rank among those visible to the job. Null if neither is known.
void add_gpus(nlohmann::json& status, const nlohmann::json& gpus);
// Queries this node's agent, or all nodes, and adds the answers to the status of each node.
void ask_for_gpus(RunningJob& job);
void ask_for_gpus(const RunningJob& job, NodesAnswers& nodes);

}  // namespace ddprun
