// The ranks of this node's workers in a round. Pure.
#pragma once

#include <vector>

#include "launcher/plan/plan.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

// By local rank. `release`: the coordinator's, of a job on many machines; null: this node is the whole job.
std::vector<RankAssignment> ranks_of_node(const Plan& plan, const rendezvous::Release* release);

// Of a worker with these ranks: what the plan alone says of its environment.
WorkerSettings planned_settings(const Plan& plan, const RankAssignment& ranks);

}  // namespace ddprun
