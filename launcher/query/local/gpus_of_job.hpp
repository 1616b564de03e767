// Adds the GPU usage of a running job's workers to their status, for `status`, `top` and `report --follow`. A call blocks for
// at most two seconds.
#pragma once

#include <nlohmann/json.hpp>

#include "launcher/query/local/control_client.hpp"
#include "launcher/query/local/job_nodes.hpp"

namespace ddprun {

// Adds "gpu" to each worker of `status`: the device on which the worker's process computes. If that is unknown, "gpu" is the
// visible device whose index is the worker's local rank. "gpu" is null if neither device is known.
void add_gpus(nlohmann::json& status, const nlohmann::json& gpus);
// Queries the GPU usage of the workers from this node's agent, or from all nodes, and adds it to the status of each node.
void query_gpus(RunningJob& job);
void query_gpus(const RunningJob& job, ClusterAnswers& nodes);

}  // namespace ddprun
