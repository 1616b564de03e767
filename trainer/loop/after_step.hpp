// The work between two steps: compare the ranks' states, evaluate, save. train.cpp calls these functions. All ranks must call
// them together, unless the comment of a function states otherwise.
#pragma once

#include "common/base/error.hpp"
#include "trainer/loop/evaluate.hpp"
#include "trainer/loop/workspace.hpp"
#include "trainer/reading/source_error.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// This call is not collective. Returns the arguments for evaluate(): the model in `state`, and the data and settings in `work`.
Evaluated model_to_evaluate(const TrainingState& state, const Workspace& work);
// Evaluates the model after the current step and reports the result. If the evaluation fails on any rank, saves the state and
// throws on all ranks.
void evaluate_and_log(TrainingState& state, Workspace& work);

// Compares the ranks' states before the last save of a run, if ddp.compare_every_steps is set. follow_step() compares them only
// every N steps, so it may not have compared them after the last step.
void compare_at_end(const TrainingState& state, Workspace& work);

// Compares the ranks' states, evaluates and saves, each if it is due after this step. The evaluation comes before the save, so
// that the log contains the evaluation of each checkpoint.
//
// If comparisons are configured, only a compared state is saved. A time-based save then waits until the next comparison: only
// rank 0 detects that it is due, and a comparison needs all ranks.
void follow_step(TrainingState& state, Workspace& work);

// Saves the last checkpoint of the run, on rank 0 and on each rank that writes a copy for its node. Returns on all ranks when
// the checkpoint is published. Until then, the ranks run a small collective every second, because a single collective that
// takes longer than ddp.timeout_s fails.
void save_last(const TrainingState& state, Workspace& work);

// This call is not collective. Saves the state after the last step on a rank that cannot read its data. This rank cannot use
// save_last(), because the other ranks already wait for it in the next step. It can save alone, since every rank stores the
// whole state. This works on any rank, and for each kind of recovery. With `--recovery live`, the survivors try to save too,
// but skip the step because it is already published.
void save_without_peers(const TrainingState& state, Workspace& work);

// This call is not collective. Runs a function that reads data between two steps. If the data cannot be read, for example
// because a file is truncated, saves the state after the last step and rethrows the error.
template <class Reads>
auto with_save_on_data_error(const TrainingState& state, Workspace& work, Reads reads) {
  try {
    return reads();
  } catch (const UsageError&) {
    save_without_peers(state, work);
    throw;
  } catch (const SourceError&) {
    save_without_peers(state, work);
    throw;
  }
}

}  // namespace ddprun::trainer
