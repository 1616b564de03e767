// Sends the training state from ranks that have it to ranks that don't. After a regroup the most advanced survivors send it to
// new ranks and to ranks that are one step behind. trainer/life/state_source.cpp calls it in every new group, including the
// first. If only some nodes have a checkpoint, the ranks that loaded it send it to the others
// (trainer/resume/resumed_state.cpp). The state after k steps is the same on every rank that has it, so the ranks only need to
// compare their progress.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/parallel/peers.hpp"
#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

struct Sharing {
  std::vector<int> without;  // ranks that had no whole state
  std::vector<int> holders;  // ranks that had this state before the call
};

// The progress of a rank: it grows with each step, and with the evaluation after the last step. kNoProgress: the state is not
// whole.
constexpr std::int64_t kNoProgress = -1;
std::int64_t progress_of(const TrainingState& state, StateOrigin origin);

// Collective. If any rank's state is whole, all ranks have the most advanced one afterwards, and `origin` is kSurvivors. A
// whole state stays whole until the new one has arrived completely; any other is kNothing meanwhile. If no rank has a whole
// state, nothing changes and the result is empty. The state must then come from a checkpoint or the seed.
Sharing share_state(TrainingState& state, StateOrigin& origin, const Peers& peers);
// The same if all ranks already know the progress of each (ProgramBuilds::agree): `progress` has progress_of() of each rank.
Sharing share_state(TrainingState& state, StateOrigin& origin, const Peers& peers, const std::vector<std::int64_t>& progress);

}  // namespace ddprun::trainer
