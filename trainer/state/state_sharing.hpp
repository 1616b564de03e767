// State from those who have it to those who don't. After a regroup the most advanced of the survivors send theirs to a rank
// that has just been started, and to one that is a step behind: trainer/life/state_source.cpp calls it on every new group, the
// first included. Where only some nodes have a checkpoint, those who have loaded it send it to the others
// (trainer/resume/resumed_state.cpp). A state after k steps is the same on every rank that has it, so there is nothing to
// reconcile but who is how far.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/parallel/peers.hpp"
#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

struct Sharing {
  std::vector<int> without;  // ranks that had none
  std::vector<int> holders;  // whose state it is now; each came to it by itself
};

// Grows with what the rank has done: the steps, and after the last of them its evaluation. kNoProgress: its state is not whole.
constexpr std::int64_t kNoProgress = -1;
std::int64_t progress_of(const TrainingState& state, StateOrigin origin);

// Collective. Where any rank's state is whole, all have it afterwards, and `origin` is kSurvivors; a state that was
// whole is that until all of the new one has arrived, any other is kNothing meanwhile. Where none is, nothing is touched and
// nobody is in the answer: the state has to come from a checkpoint or the seed.
Sharing share_state(TrainingState& state, StateOrigin& origin, const Peers& peers);
// The same where all ranks know already how far each is (ProgramBuilds::agree): `progress` has progress_of() of each.
Sharing share_state(TrainingState& state, StateOrigin& origin, const Peers& peers, const std::vector<std::int64_t>& progress);

}  // namespace ddprun::trainer
