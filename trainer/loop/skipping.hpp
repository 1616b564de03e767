// What the loop does where a loss or a gradient is not finite and the run does not end: trainer/state/skipped_steps.hpp. The
// gradients tell all ranks, without an exchange of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/data/loader.hpp"
#include "trainer/loop/workspace.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// What a backward pass of this loss begins with: 1, and where steps are skipped NaN for a loss that is not finite. Its
// gradients may be finite, and no other rank would hear of it. Undefined where steps are not skipped: the pass begins with 1 by
// itself.
at::Tensor seed_of_backward(const at::Tensor& loss, const TrainingState& state);

// In place of the update of a step whose gradients are not finite: buffers are as before the step, weights and moments are so
// anyway. Counts both kinds of steps. True: this one was skipped, and not by the scaler of fp16. Throws DivergedError, on all
// ranks alike, for fp16 gradients that stay infinite when the loss scale is below 1: no scale makes them finite, and the run
// would end with code 0 and unchanged weights.
bool update_or_skip(TrainingState& state, const Workspace& work, bool finite, double lr);

// After such a step. Throws DivergedError, on all ranks alike, when too many were skipped one after the other.
void tell_skipped(const TrainingState& state, Workspace& work, const Share& share);

// After a run's last step. Throws DivergedError, on all ranks alike, when its last hundred steps changed nothing. A shorter run
// in which no step changed anything gets a warning.
void require_change(const TrainingState& state, Workspace& work);

}  // namespace ddprun::trainer
