// What the GPUs of a running job's workers do, put into their status. `status` and `top` use it. It blocks, two seconds at
// most.
#pragma once

#include <nlohmann/json.hpp>

#include "launcher/commands/chosen_job.hpp"
#include "launcher/commands/job_nodes.hpp"

namespace ddprun {

// Each worker of `status` gets "gpu": of the device on which its process computes, else of the one at its local rank, of those
// that CUDA shows the job. Null where none is known.
void add_gpus(nlohmann::json& status, const nlohmann::json& gpus);
// Asks this node's agent, or all nodes, and puts the answers into the status of each.
void ask_for_gpus(RunningJob& job);
void ask_for_gpus(const RunningJob& job, NodesAnswers& nodes);

}  // namespace ddprun
