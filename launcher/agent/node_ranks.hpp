// The ranks of this node's workers in a round. Pure.
#pragma once

#include <vector>

#include "launcher/plan/plan.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

// Indexed by local rank. `release` comes from the coordinator of a job on many machines; null: the job has only this node.
std::vector<RankAssignment> ranks_of_node(const Plan& plan, const rendezvous::Release* release);

// The settings of a worker with these ranks that follow from the plan alone.
WorkerSettings planned_settings(const Plan& plan, const RankAssignment& ranks);

}  // namespace ddprun
