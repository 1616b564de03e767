// Implements two rules that depend on the results of evaluations: the plateau schedule, which lowers the learning rate, and
// early stopping, which ends the run. Their counters are in TrainingState::values, so a checkpoint contains them and a replaced
// worker receives them. The training loop calls update_evaluation_rules() after an evaluation. All ranks have the same metrics,
// so they make the same decision without communication.
#pragma once

#include <string>

#include "common/base/metric.hpp"
#include "common/config/train_config.hpp"
#include "trainer/data/run_length.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// Sets `values` to exactly the entries that this config needs. Each entry has the value in `saved`, or its initial value if
// `saved` lacks it. Other entries of `saved` are dropped, except the entry for a missing evaluation (below), which is always
// kept.
void init_values(StateValues& values, const TrainConfig& config, const StateValues& saved);

// Call this once after each evaluation that the config schedules by epochs or steps (evaluates_by_schedule). Do not call it
// after an additional evaluation at the end of the run, because a longer run would not have made that evaluation.
void update_evaluation_rules(StateValues& values, const TrainConfig& config, const MetricList& figures);

// An evaluation is missing if it failed after the last finished step. The state is then saved without the result, and the run
// does not count as finished. After a restart the run first repeats the evaluation. An entry in StateValues records this, so
// the checkpoint contains the entry. Earlier versions of ddprun ignore the entry.
void mark_evaluation_missing(StateValues& values);
bool evaluation_is_missing(const StateValues& values);
void clear_missing_evaluation(StateValues& values);

// Returns the learning rate of the step that follows `finished` finished steps.
double learning_rate(const StateValues& values, const TrainConfig& config, const RunLength& length, std::int64_t finished);

// Returns the reason if early stopping ends the run, for example "loss has not improved in 5 evaluations". Returns an empty
// string if the run continues.
std::string reason_to_stop_early(const StateValues& values, const TrainConfig& config);

// Returns true if the run is over: it has finished all steps, or early stopping ends it.
bool is_over(const TrainingState& state, const TrainConfig& config, const RunLength& length);

}  // namespace ddprun::trainer
