// The part of the oracle (simulated_job.hpp) that checks the decision of a regroup. This part uses only the true state of the
// ranks and the definition of a layout. It does not call the code that makes decisions, so that an error in that code cannot
// affect the check.
#pragma once

#include <memory>
#include <vector>

#include "tests/trainer/commit/simulated_rank.hpp"

namespace ddprun::trainer::simulation {

// Sets world.violation if the decision loses a step or an evaluation, or returns to the checkpoint even though a rank has the
// state.
void judge_decision(World& world, const std::vector<std::unique_ptr<SimulatedRank>>& ranks, const CommitDecision& decision);

}  // namespace ddprun::trainer::simulation
