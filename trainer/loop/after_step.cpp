#include "trainer/loop/after_step.hpp"

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "trainer/failure/failure.hpp"
#include "trainer/optim/weight_average.hpp"
#include "trainer/state/evaluation_rules.hpp"
#include "trainer/state/state_comparison.hpp"

namespace ddprun::trainer {
namespace {

// Evaluates the moving average of the weights if the run has one, otherwise the weights.
EvaluationAttempt evaluate_weights(const TrainingState& state, const Workspace& work) {
  std::optional<WeightAverage::WeightSwap> average;
  if (state.average) average.emplace(*state.average);
  return try_evaluate(model_to_evaluate(state, work), work.peers, work.mesh,
                      [&work] { work.status.at(channel::Stage::kLoss); });
}

// This call is collective. Saves the state before the job fails. For example, the evaluation may find a damaged image in the
// test set after hours of training. Without the save, this training would be lost. The saved state records that its evaluation
// is missing, so a resumed run repeats the evaluation. Then the rank with the error throws it. The other ranks wait in a
// barrier, where they detect that this rank is lost.
[[noreturn]] void save_and_fail(const std::exception_ptr& failure, TrainingState& state, Workspace& work) {
  if (failure) {
    work.log.warn(channel::ErrorKind::kException, "the evaluation after step " + std::to_string(state.step) +
                                                      " failed: " + classify(failure).message +
                                                      "; the training state is saved, then the job ends with this error");
  }
  mark_evaluation_missing(state.values);
  if (state.step > state.started_from) save_last(state, work);
  work.status.enter(channel::Phase::kEvaluating);  // after "out of memory", the phase decides which batch size a restart halves
  if (failure) std::rethrow_exception(failure);
  work.peers.barrier();
  throw InternalError("expected the rank whose evaluation failed to exit, but it is still running");
}

void compare(const TrainingState& state, Workspace& work) {
  work.status.at(channel::Stage::kComparing);
  work.pace.in(StepPart::kWaiting, [&] { compare_states(state, work.peers); });
  work.status.at(channel::Stage::kLoading);
}

void save_with(Checkpointing& writer, const TrainingState& state, const Workspace& work) {
  try {
    writer.begin_last(state, work.config, work.length, state.bucket_order, work.peers.world());
    while (!writer.last_is_saved(std::chrono::seconds(1))) {
    }
  } catch (const std::exception& error) {
    work.log.warn(channel::ErrorKind::kCheckpoint, error.what());
  }
}

}  // namespace

Evaluated model_to_evaluate(const TrainingState& state, const Workspace& work) {
  return {work.task, *state.model, work.data, work.config, work.device, {*work.test_upload, *work.upload}};
}

void evaluate_and_log(TrainingState& state, Workspace& work) {
  const auto begin = std::chrono::steady_clock::now();
  work.status.at(channel::Stage::kForward);
  work.status.enter(channel::Phase::kEvaluating);
  work.faults.at(FaultPhase::kEvaluating, state.step);
  EvaluationAttempt attempt = evaluate_weights(state, work);
  if (!attempt.result) save_and_fail(attempt.failure, state, work);
  const Evaluation result = std::move(*attempt.result);
  clear_missing_evaluation(state.values);
  state.evaluation = StepEvaluation{state.step, result};
  if (evaluates_by_schedule(work.length, work.config, state.step)) {
    update_evaluation_rules(state.values, work.config, result.figures);
  }
  work.log.evaluation(state.step, result);
  if (work.checkpointing) work.checkpointing->evaluated(state.step, result);
  const auto took = std::chrono::steady_clock::now() - begin;
  work.log.exclude_pause(took);
  work.pace.exclude_pause(took);
  work.status.at(channel::Stage::kLoading);
  work.status.enter(channel::Phase::kRunning);
}

void compare_at_end(const TrainingState& state, Workspace& work) {
  if (work.config.ddp.compare_every_steps > 0) compare(state, work);
}

void follow_step(TrainingState& state, Workspace& work) {
  const bool compares = work.config.ddp.compare_every_steps > 0 && work.peers.world() > 1;
  const bool compared = compares && compares_after(work.length, work.config, state.step);
  if (compared) compare(state, work);
  const bool evaluated = state.evaluation && state.evaluation->step == state.step;
  const bool due = evaluates_after(work.length, work.config, state.step) || evaluation_is_missing(state.values);
  if (due && !evaluated) evaluate_and_log(state, work);
  const bool may_save = !is_over(state, work.config, work.length) && (compared || !compares);
  if (work.checkpointing && may_save && work.checkpointing->due(state.step)) {
    work.checkpointing->save(state, work.config, work.length, state.bucket_order, work.peers.world(),
                             Checkpointing::Need::kUseful);
  }
}

void save_last(const TrainingState& state, Workspace& work) {
  constexpr std::chrono::seconds kExchangeInterval{1};
  if (work.checkpointing) {
    work.checkpointing->begin_last(state, work.config, work.length, state.bucket_order, work.peers.world());
  }
  bool saved = work.checkpointing == nullptr;
  do {
    if (!saved) {
      saved = work.checkpointing->last_is_saved(kExchangeInterval);
      if (saved) work.status.enter(channel::Phase::kRunning);
    }
    work.status.at(channel::Stage::kMeeting);
  } while (work.peers.smallest(saved ? 1 : 0) == 0);
}

void save_without_peers(const TrainingState& state, Workspace& work) {
  // If this is true, a state may be saved only after a comparison of all ranks, which one rank cannot make alone.
  const bool compares = work.config.ddp.compare_every_steps > 0 && work.peers.world() > 1;
  if (state.step == state.started_from || compares) return;
  const channel::Phase before = work.status.phase();
  if (work.checkpointing) save_with(*work.checkpointing, state, work);
  if (work.second_writer) save_with(*work.second_writer(), state, work);
  work.status.enter(before);
}

}  // namespace ddprun::trainer
