// State from those who have it to those who don't. After a regroup the most advanced of the survivors send theirs to a rank
// that has just been started, and to one that is a step behind: worker.cpp calls it on every new group, the first included.
// Where only some nodes have a checkpoint, those who have loaded it send it to the others (resumed_state.hpp). A state after k
// steps is the same on every rank that has it, so there is nothing to reconcile but who is how far.
#pragma once

#include <vector>

#include "trainer/parallel/peers.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

struct Sharing {
  bool somebody_had_it = false;  // false: nothing was touched; the state has to come from a checkpoint or be made
  std::vector<int> without;      // ranks that had none
  std::vector<int> holders;      // whose state it is now; each came to it by itself
};

// Collective. `whole`: this rank's state is that after state.step steps; set to false while it is being received, so that an
// exception leaves the truth behind.
Sharing share_state(TrainingState& state, bool& whole, const Peers& peers);

}  // namespace ddprun::trainer
