// The effects of evaluations on a run: a learning rate by plateau, and an end before the last step. Both are kept in
// TrainingState::values, so a checkpoint contains them and a replaced worker receives them. The training loop reports each
// evaluation. All ranks have the same metrics, so they decide the same.
#pragma once

#include <string>

#include "common/base/figure.hpp"
#include "common/config/train_config.hpp"
#include "trainer/data/run_length.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// Takes from `saved` the values that this config needs, and initialises those that are absent. All other values are dropped.
void begin_values(StateValues& values, const TrainConfig& config, const StateValues& saved);

// Call once for each evaluation that the config schedules by epochs and steps (evaluates_by_schedule). Don't call it for an
// evaluation at the end of the run.
void heed_evaluation(StateValues& values, const TrainConfig& config, const FigureList& figures);

// An evaluation is owed if it failed after the state's newest step. The state was saved without it, and the next start
// evaluates first. A run that owes one is not finished. A checkpoint stores the mark; earlier versions ignore it.
void owe_evaluation(StateValues& values);
bool owes_evaluation(const StateValues& values);
void settle_evaluation(StateValues& values);

// Learning rate of the step after `finished` steps.
double learning_rate(const StateValues& values, const TrainConfig& config, const RunLength& length, std::int64_t finished);

// Returns why the run ends before its last step, for example "loss has not improved in 5 evaluations"; empty if it continues.
std::string reason_to_stop_early(const StateValues& values, const TrainConfig& config);

// True if the run has no further step.
bool is_over(const TrainingState& state, const TrainConfig& config, const RunLength& length);

}  // namespace ddprun::trainer
