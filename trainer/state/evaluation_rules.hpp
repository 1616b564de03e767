// What evaluations change in a run: a learning rate by plateau, and an end before the last step. Both are remembered in
// TrainingState::values, so that a checkpoint has them and a replaced worker gets them. The training loop tells of each
// evaluation; all ranks tell the same figures, so they decide alike.
#pragma once

#include <string>

#include "common/base/figure.hpp"
#include "common/config/train_config.hpp"
#include "trainer/data/run_length.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// Takes over what is `saved` of what this config asks for, and begins the rest. What it does not ask for is left out.
void begin_values(StateValues& values, const TrainConfig& config, const StateValues& saved);

// Once for each evaluation that the config asks for by epochs and steps (evaluates_by_schedule), and not for one that is made
// because the run ends.
void heed_evaluation(StateValues& values, const TrainConfig& config, const FigureList& figures);

// An evaluation that failed after the state's newest step: the state was saved without it, and the next start makes it first. A
// run that owes one is not finished. A checkpoint keeps it; earlier versions ignore it.
void owe_evaluation(StateValues& values);
bool owes_evaluation(const StateValues& values);
void settle_evaluation(StateValues& values);

// Of the step after `finished` ones.
double learning_rate(const StateValues& values, const TrainConfig& config, const RunLength& length, std::int64_t finished);

// Why the run ends although there are steps left, such as "loss has not improved in 5 evaluations"; empty when it does not.
std::string reason_to_stop_early(const StateValues& values, const TrainConfig& config);

// The run has no further step.
bool is_over(const TrainingState& state, const TrainConfig& config, const RunLength& length);

}  // namespace ddprun::trainer
