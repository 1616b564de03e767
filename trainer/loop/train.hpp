// The training loop for data-parallel training. train.cpp is short enough for one page and shows all work of a step in order.
// The functions that it calls are in separate files.
#pragma once

#include "trainer/loop/workspace.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

enum class Outcome {
  kDone,       // the last step is finished, and the state is saved
  kPreempted,  // stopped on request after a step on which all ranks agreed, and the state is saved
};

// Trains from state.step until the last step or a request to stop. Returns when the last checkpoint is saved and all ranks have
// been informed. Throws DivergedError for a NaN or infinite loss, UnsavedError or InternalError if the last checkpoint cannot
// be saved, and the process group's error if another rank is lost.
Outcome train(TrainingState& state, Workspace& work);

}  // namespace ddprun::trainer
