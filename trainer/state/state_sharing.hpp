// Sends the training state from ranks that have it to ranks that lack it. There are two uses:
//   - After a regroup, the survivors with the newest state send it to the replacements, and to survivors that are one step
//     behind. trainer/life/state_source.cpp calls share_state() in every new group, including the first.
//   - If only some nodes have a checkpoint, the ranks that loaded it send it to the other ranks
//     (trainer/resume/resumed_state.cpp).
// All ranks that have a state after k steps have the same state. So the ranks compare only their progress, not their states.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/parallel/peers.hpp"
#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

struct Sharing {
  std::vector<int> without;  // ranks that had no complete state before the call
  std::vector<int> holders;  // ranks that had the newest state before the call
};

// Progress of a rank: 2 * finished steps, plus 1 if the evaluation after the last step is also finished. kNoProgress if the
// state is incomplete.
constexpr std::int64_t kNoProgress = -1;
std::int64_t progress_of(const TrainingState& state, StateOrigin origin);

// All ranks must call this. If at least one rank has a complete state, all ranks have the newest state afterwards, and
// `origin` becomes kSurvivors. If a sender is lost during the transfer, a rank with an older complete state keeps that state;
// on any other receiver, `origin` becomes kNothing. If no rank has a complete state, nothing is sent and the result is empty.
// The caller must then take the state from a checkpoint or from the seed.
Sharing share_state(TrainingState& state, StateOrigin& origin, const Peers& peers);
// Works like the other share_state(), but without the exchange of progress. `progress` has the result of progress_of() on each
// rank, as ProgramBuilds::agree() returns it.
Sharing share_state(TrainingState& state, StateOrigin& origin, const Peers& peers, const std::vector<std::int64_t>& progress);

}  // namespace ddprun::trainer
