// Skips steps whose loss or gradient is not finite, if the config allows it. trainer/state/skipped_steps.hpp describes when
// this happens. All ranks must skip the same steps. This needs no additional collective: if one rank's gradients are NaN or
// infinite, the all-reduce makes the summed gradients non-finite on every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/data/loader.hpp"
#include "trainer/loop/workspace.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// Returns the gradient with which the backward pass of this loss starts. If the config skips steps, it is 1 for a finite loss
// and NaN otherwise. Autograd's default of 1 would not be enough: the gradients of a NaN loss can be finite, and the other
// ranks would then update their weights. If steps are not skipped, returns an undefined tensor, for which autograd uses 1.
at::Tensor seed_of_backward(const at::Tensor& loss, const TrainingState& state);

// Ends the step. If the gradients are finite, updates the weights. Otherwise skips the step: the weights and moments are not
// changed, and if the config skips steps, the buffers are restored. Returns true if the step was skipped and must be reported.
// If a step was skipped because the loss scale of fp16 was too high, this is normal, so the result is false.
//
// Throws DivergedError on all ranks if fp16 gradients are still infinite with a loss scale below 1. A lower scale would not
// help, and all further steps would be skipped.
bool update_or_skip(TrainingState& state, const Workspace& work, bool finite, double lr);

// Logs a warning about a skipped step. Call this after update_or_skip() has returned true. Throws DivergedError on all ranks if
// more than max_skipped_steps consecutive steps were skipped.
void report_skipped_step(const TrainingState& state, Workspace& work, const RankBatch& share);

// Call this after the last step of a run. Throws DivergedError on all ranks if at least the last hundred steps were skipped. A
// shorter run that has skipped every step causes only a warning.
void require_change(const TrainingState& state, Workspace& work);

}  // namespace ddprun::trainer
