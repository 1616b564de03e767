// Computes the ranks of this node's workers in a round. The code is pure: no I/O, no clock.
#pragma once

#include <vector>

#include "launcher/plan/plan.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

// Returns one entry for each local rank. `release` is the coordinator's message that started the round, or null in a job on one
// machine.
std::vector<RankAssignment> ranks_of_node(const Plan& plan, const rendezvous::Release* release);

// Returns the settings of a worker with these ranks, except the settings that are known only when the worker starts.
WorkerSettings planned_settings(const Plan& plan, const RankAssignment& ranks);

}  // namespace ddprun
