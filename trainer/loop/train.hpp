// The training loop: what data-parallel training is, on one page. Everything it calls has a file of its own.
#pragma once

#include "trainer/loop/workspace.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

enum class Outcome {
  kDone,       // the config's last step is finished and saved
  kPreempted,  // stopped at a step on which all ranks agreed, and saved
};

// Trains from state.step on. Returns when rank 0 has saved the last checkpoint and all ranks know. Throws DivergedError for a
// loss that is not a number, InternalError when the last checkpoint can't be saved, and what the process group throws for a
// lost peer.
Outcome train(TrainingState& state, Workspace& work);

}  // namespace ddprun::trainer
