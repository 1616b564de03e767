// The training loop: data-parallel training on one page. Everything that it calls has its own file.
#pragma once

#include "trainer/loop/workspace.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

enum class Outcome {
  kDone,       // the last step of the config is finished and saved
  kPreempted,  // stopped at a step on which all ranks agreed, and saved
};

// Trains from state.step on. Returns when the last checkpoint is saved and all ranks know it. Throws DivergedError for a NaN or
// infinite loss, UnsavedError or InternalError if the last checkpoint can't be saved, and the process group's error for a lost
// peer.
Outcome train(TrainingState& state, Workspace& work);

}  // namespace ddprun::trainer
