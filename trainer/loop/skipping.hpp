// Handles steps whose loss or gradient is not finite in a run that continues: trainer/state/skipped_steps.hpp. The summed
// gradients are not finite on any rank then, so no extra exchange is needed.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/data/loader.hpp"
#include "trainer/loop/workspace.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// Returns the gradient with which the backward pass of this loss begins. If steps are skipped, it is 1 for a finite loss and
// NaN otherwise. With 1, the gradients of a NaN loss may be finite, and the other ranks would not detect it. Undefined if steps
// are not skipped: autograd then begins with 1.
at::Tensor seed_of_backward(const at::Tensor& loss, const TrainingState& state);

// Updates the weights if the gradients are finite, and counts the step. Otherwise it restores the buffers; weights and moments
// are still those of the step before. Returns true if the step was skipped, except by the scaler of fp16. Throws DivergedError
// on all ranks if fp16 gradients stay infinite with a loss scale below 1. No scale makes them finite, and the run would end
// with exit code 0 and unchanged weights.
bool update_or_skip(TrainingState& state, const Workspace& work, bool finite, double lr);

// Call after a skipped step. Throws DivergedError on all ranks if too many consecutive steps were skipped.
void tell_skipped(const TrainingState& state, Workspace& work, const Share& share);

// Call after the last step of a run. Throws DivergedError on all ranks if the last hundred steps changed nothing. A shorter run
// without any change gets a warning.
void require_change(const TrainingState& state, Workspace& work);

}  // namespace ddprun::trainer
