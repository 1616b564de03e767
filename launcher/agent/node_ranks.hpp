// The ranks of this node's workers in a round. Pure.
#pragma once

#include <vector>

#include "launcher/plan/plan.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

// By local rank. `release`: the coordinator's, of a job on many machines; null: this node is the whole job.
std::vector<RankAssignment> ranks_of_node(const Plan& plan, const rendezvous::Release* release);

}  // namespace ddprun
