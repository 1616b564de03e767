#include "trainer/loop/train.hpp"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/cost/flop_count.hpp"
#include "trainer/cost/host_peak.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/loop/bad_data.hpp"
#include "trainer/loop/evaluate.hpp"
#include "trainer/loop/loss.hpp"
#include "trainer/loop/seeds.hpp"
#include "trainer/loop/skipping.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/optim/weight_average.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/reading/source_error.hpp"
#include "trainer/state/evaluation_rules.hpp"
#include "trainer/state/loss_scale.hpp"
#include "trainer/state/skipped_steps.hpp"
#include "trainer/state/state_comparison.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {
namespace {

// Seeds the default generator in every step, so that a replayed step draws the same numbers. Dropout and all other draws of a
// task use this generator.
void seed_step(const Workspace& work, std::int64_t step) {
  at::Generator generator = at::globalContext().defaultGenerator(work.device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(step_seed(work.config.seed, step, work.peers.rank()));
}

// Tests only: the process dies in the middle of the backward pass, when only some gradients are computed.
void arm_backward_fault(TrainingState& state, const Workspace& work) {
  if (!work.faults.due(FaultPhase::kBackward, state.step)) return;
  const std::vector<NamedTensor> trained = trained_parameters(state);
  const at::Tensor& middle = trained[trained.size() / 2].tensor;
  middle.register_hook([&work, step = state.step](const at::Tensor&) { work.faults.at(FaultPhase::kBackward, step); });
}

// `data` names the NaN or infinite number in this rank's data. Empty if none was found, or if only another rank's data can have
// one.
[[noreturn]] void diverged(std::int64_t finished, int rank, const std::string& data) {
  throw DivergedError(
      "the loss of step " + std::to_string(finished + 1) + " is NaN or infinite on rank " + std::to_string(rank) +
      (data.empty() ? "; a lower learning rate, warm-up or clip_grad_norm may help" : ", whose data has " + data));
}

// Returns the loss as Float32, whatever type the task's last operation used under autocast. Throws UsageError that names the
// sample if a label or a token is out of range.
at::Tensor loss_of(const Workspace& work, torch::nn::Module& model, const Batch& batch, const Share& share) {
  const Autocast precision(work.config.precision, work.device.type());
  at::Tensor loss;
  try {
    loss = work.task.loss(model, batch);
  } catch (const c10::IndexError& error) {
    refuse_index(error, share.samples, *work.data.train,
                 [&](const Batch& one) { work.task.loss(model, work.upload->take(one)); });
  }
  const bool reduced = loss.defined() && (loss.scalar_type() == at::kBFloat16 || loss.scalar_type() == at::kHalf);
  return reduced ? loss.to(at::kFloat) : loss;
}

void require_scalar(const at::Tensor& loss) {
  if (loss.defined() && loss.dim() == 0 && loss.scalar_type() == at::kFloat && loss.requires_grad()) return;
  throw UsageError(!loss.defined() ? std::string("the task's loss is no tensor")
                                   : c10::str("the task's loss is ", loss.scalar_type(), " ", loss.sizes(),
                                              loss.requires_grad() ? "" : " without a gradient",
                                              "; expected a Float scalar that depends on parameters that require gradients"));
}

// On the CPU, checking every loss costs nothing, so the first bad one is reported. On a GPU each check would wait for the
// device. There the losses are only checked in logged steps (global_figures).
void check_loss(const at::Tensor& loss, const TrainingState& state, const Workspace& work, const Share& share) {
  if (is_skipped(state.values, work.config)) return;
  if (!work.device.is_cpu() || std::isfinite(*loss.const_data_ptr<float>())) return;
  diverged(state.step, work.peers.rank(), not_finite_in(share, *work.data.train));
}

// Returns this rank's part of the mean loss of the global batch. Reading a loss waits for the device, so all are read together
// at the end of the step.
double part_of_loss(const std::vector<at::Tensor>& losses, const Share& share) {
  if (losses.empty()) return 0;  // a stand-in has no loss
  const at::Tensor read = at::stack(losses).to(at::kCPU, at::kDouble);
  const auto* const values = read.const_data_ptr<double>();
  double sum = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    sum += values[i] * share.micro_batches[i].weight / share.global_weight;
  }
  return sum;
}

void note_waits_of_batch_norms(Workspace& work, StepPart part) {
  if (work.synced) work.pace.waited_in(part, work.synced->take_waited());
}

// Runs forward and backward over this rank's share. The Reducer all-reduces gradients while the last micro-batch's backward
// still runs. Returns the mean loss of each micro-batch, on the device. A stand-in has none.
std::vector<at::Tensor> accumulate_gradients(TrainingState& state, Workspace& work, const Share& share) {
  std::vector<at::Tensor> losses;
  StepPace& pace = work.pace;
  pace.in(StepPart::kOptimizer, [&] { work.strategy->zero_grad(); });
  for (std::size_t i = 0; i < share.micro_batches.size(); ++i) {
    const bool sync = i + 1 == share.micro_batches.size();
    work.status.at(channel::Stage::kForward);
    work.faults.take(state.step, share.micro_batches[i].samples());
    const Batch batch = pace.in(StepPart::kData, [&] { return work.upload->take(share.micro_batches[i]); });
    if (work.synced) work.synced->count_own(!batch.stand_in);
    at::Tensor loss = pace.in(StepPart::kForward, [&] {
      work.strategy->before_forward(sync);
      return loss_of(work, *state.model, batch, share);
    });
    note_waits_of_batch_norms(work, StepPart::kForward);
    require_scalar(loss);
    work.strategy->before_backward(loss, sync);
    if (work.faults.poisons(state.step)) loss = loss.mul(std::numeric_limits<double>::quiet_NaN());
    check_loss(loss, state, work, share);
    const double counts_for = batch.stand_in ? 0 : batch.weight;
    pace.in(StepPart::kBackward, [&] {
      const at::Tensor part = weighted(loss, micro_batch_weight(counts_for, work.mesh.data, share.global_weight));
      weighted(part, loss_scale(state.values, work.config)).backward(seed_of_backward(loss, state));
      work.strategy->after_backward(sync);
    });
    note_waits_of_batch_norms(work, StepPart::kBackward);
    if (!batch.stand_in) losses.push_back(loss.detach());
  }
  return losses;
}

// Rank 0 counts the operations per sample once, in the first step in which it has samples, and passes the count to the log.
std::vector<at::Tensor> accumulate_and_count(TrainingState& state, Workspace& work, const Share& share) {
  if (work.log.knows_flops() || share.samples.empty()) return accumulate_gradients(state, work, share);
  const FlopCount flops;
  std::vector<at::Tensor> losses = accumulate_gradients(state, work, share);
  work.log.a_sample_takes(static_cast<double>(flops.counted()) / static_cast<double>(share.samples.size()));
  return losses;
}

struct GlobalFigures {
  double loss = 0;  // mean over the global batch, summed from every rank's part
  // By rank 0's clock. The other writers get it here, since this exchange takes place anyway.
  bool save_is_due = false;
  double peak_memory = 0;  // rank 0's peak memory; it uses the same exchange
  double largest_peak_memory = 0;
};

// Peak memory of this rank in bytes: of its tensors on a GPU, otherwise of the process.
double peak_memory(const c10::Device& device) {
  return static_cast<double>(device.is_cuda() ? cuda_module()->memory(device.index()).peak_allocated_bytes
                                              : recent_host_peak_memory());
}

enum class NoNumber { kEndsRun, kIsShown };

// If a loss is NaN or infinite and `no_number` is kEndsRun, throws DivergedError on all ranks, naming the first such rank.
GlobalFigures global_figures(double own, bool asks_for_save, const Share& share, const Workspace& work, NoNumber no_number) {
  const Peers& peers = work.peers;
  std::vector<double> sums(static_cast<std::size_t>(peers.world()) + 2, 0.0);
  sums.back() = asks_for_save ? 1.0 : 0.0;
  const auto here = static_cast<std::size_t>(peers.rank()) + 1;
  const double peak = std::max(1.0, peak_memory(work.device));
  sums[here] = std::isfinite(own) ? peak : -peak;  // the sign reports a bad loss, the absolute value the peak memory
  sums[0] = std::isfinite(own) ? own : 0.0;
  peers.sum(sums);
  double largest = 0;
  for (int rank = 0; rank < peers.world(); ++rank) {
    const double peak_there = sums[static_cast<std::size_t>(rank) + 1];
    largest = std::max(largest, std::abs(peak_there));
    if (peak_there > 0) continue;
    if (no_number == NoNumber::kEndsRun) {
      diverged(share.step, rank, rank == peers.rank() ? not_finite_in(share, *work.data.train) : "");
    }
    sums[0] = std::numeric_limits<double>::quiet_NaN();
  }
  return {.loss = sums[0], .save_is_due = sums.back() > 0, .peak_memory = std::abs(sums[1]), .largest_peak_memory = largest};
}

void save_by(Checkpointing& writer, const TrainingState& state, const Workspace& work) {
  try {
    writer.begin_last(state, work.config, work.length, state.bucket_order, work.peers.world());
    while (!writer.last_is_saved(std::chrono::seconds(1))) {
    }
  } catch (const std::exception& error) {
    work.log.warn(channel::ErrorKind::kCheckpoint, error.what());
  }
}

// Saves the state between two steps without the peers, on a rank whose data has failed. Every rank holds the whole state at
// that point, and the others wait within the next step for this one. So the state is saved whichever rank reads the bad data,
// and whichever recovery the job uses. With `--recovery live` the survivors save too, and find the step already published.
void save_alone(const TrainingState& state, Workspace& work) {
  const bool compares = work.config.ddp.compare_every_steps > 0 && work.peers.world() > 1;  // a comparison would need the peers
  if (state.step == state.started_from || compares) return;
  const channel::Phase before = work.status.phase();
  if (work.checkpointing) save_by(*work.checkpointing, state, work);
  if (work.second_writer) save_by(*work.second_writer(), state, work);
  work.status.enter(before);
}

// Runs a function that reads data between two steps. If the data fails (a truncated file, for example), the state is still that
// after the last step, and is saved.
template <class Reads>
auto saving_if_data_fails(const TrainingState& state, Workspace& work, Reads reads) {
  try {
    return reads();
  } catch (const UsageError&) {
    save_alone(state, work);
    throw;
  } catch (const SourceError&) {
    save_alone(state, work);
    throw;
  }
}

// One optimizer step over one global batch.
void train_step(TrainingState& state, Workspace& work) {
  const TrainConfig& config = work.config;
  const Share share =
      work.pace.in(StepPart::kData, [&] { return saving_if_data_fails(state, work, [&] { return work.loader->next(); }); });
  const bool logs = logs_after(work.length, config, state.step + 1);

  begin_step(state);
  seed_step(work, state.step);
  work.faults.at(FaultPhase::kStep, state.step);
  arm_backward_fault(state, work);
  const std::vector<at::Tensor> losses = accumulate_and_count(state, work, share);
  work.peers.arrive();
  work.status.at(channel::Stage::kLoss);
  const bool asks_for_save = work.checkpointing && work.checkpointing->asks();
  const auto no_number = is_skipped(state.values, config) ? NoNumber::kIsShown : NoNumber::kEndsRun;
  const double own_loss = logs ? part_of_loss(losses, share) : 0;
  const GlobalFigures figures =
      !logs ? GlobalFigures{}
            : work.pace.in(StepPart::kWaiting, [&] { return global_figures(own_loss, asks_for_save, share, work, no_number); });

  StepFigures shown{.loss = figures.loss,
                    .peak_memory = static_cast<std::int64_t>(figures.peak_memory),
                    .largest_peak_memory = static_cast<std::int64_t>(figures.largest_peak_memory)};
  bool skipped = false;
  work.pace.in(StepPart::kOptimizer, [&] {
    const Gradients gradients = work.strategy->agree(state.values, logs);
    shown.gradient_norm = gradients.norm;
    work.status.at(channel::Stage::kOptimizer);
    work.faults.at(FaultPhase::kOptimizer, state.step);
    shown.lr = learning_rate(state.values, config, work.length, state.step);
    begin_update(state);
    skipped = update_or_skip(state, work, gradients.finite, shown.lr);
    end_step(state);
  });
  if (skipped) tell_skipped(state, work, share);
  shown.step = state.step;
  shown.skipped = skipped_steps(state.values);
  if (state.bucket_order.empty()) state.bucket_order = work.strategy->bucket_order();  // fixed by the first step
  if (logs) state.figures = shown;
  if (figures.save_is_due && work.checkpointing) work.checkpointing->order();
  work.status.reach(state.step, work.length.epoch_of(state.step));
  if (work.ledger) work.ledger->write(state.step, share.epoch, share.position, share.samples);
  work.pace.waited_in(StepPart::kBackward, work.strategy->take_waited());
  work.pace.done(state.step);
  if (logs) {
    work.log.step(shown, work.pace.take_parts());
  } else {
    work.log.heartbeat(state.step);
  }
}

Uploads uploads_of(const Workspace& work) {
  return {*work.test_upload, *work.upload};
}

// Evaluates the average of the weights if the run keeps one, otherwise the weights.
TriedEvaluation evaluate_weights(const TrainingState& state, const Workspace& work) {
  std::optional<WeightAverage::InPlaceOfWeights> average;
  if (state.average) average.emplace(*state.average);
  return try_evaluate(work.task, *state.model, work.data, work.config, work.device, uploads_of(work), work.peers, work.mesh,
                      [&work] { work.status.at(channel::Stage::kLoss); });
}

void save_last(const TrainingState& state, Workspace& work);

// Collective. A failed evaluation must not cost the training until then: a damaged image in the test set may be read only after
// hours. So the state is saved first, with a mark that its evaluation is missing. Then the rank with the error throws it. The
// others wait for that rank and lose it, as with any rank that fails.
[[noreturn]] void save_and_fail(const std::exception_ptr& failure, TrainingState& state, Workspace& work) {
  if (failure) {
    work.log.warn(channel::ErrorKind::kException, "the evaluation after step " + std::to_string(state.step) +
                                                      " failed: " + classify(failure).message + ". The state is saved first");
  }
  owe_evaluation(state.values);
  if (state.step > state.started_from) save_last(state, work);
  work.status.enter(channel::Phase::kEvaluating);  // the phase of the failure: it selects what a restart shrinks
  if (failure) std::rethrow_exception(failure);
  work.peers.meet();
  throw InternalError("an evaluation failed on another rank, which did not end");
}

void evaluate_and_log(TrainingState& state, Workspace& work) {
  const auto begin = std::chrono::steady_clock::now();
  work.status.at(channel::Stage::kForward);
  work.status.enter(channel::Phase::kEvaluating);
  work.faults.at(FaultPhase::kEvaluating, state.step);
  TriedEvaluation tried = evaluate_weights(state, work);
  if (!tried.result) save_and_fail(tried.failure, state, work);
  const Evaluation result = std::move(*tried.result);
  settle_evaluation(state.values);
  state.evaluation = StepEvaluation{state.step, result};
  if (evaluates_by_schedule(work.length, work.config, state.step)) {
    heed_evaluation(state.values, work.config, result.figures);
  }
  work.log.evaluation(state.step, result);
  if (work.checkpointing) work.checkpointing->evaluated(state.step, result);
  const auto took = std::chrono::steady_clock::now() - begin;
  work.log.stood_still(took);
  work.pace.stood_still(took);
  work.status.at(channel::Stage::kLoading);
  work.status.enter(channel::Phase::kRunning);
}

void save(const TrainingState& state, Workspace& work, Checkpointing::Need need) {
  work.checkpointing->save(state, work.config, work.length, state.bucket_order, work.peers.world(), need);
}

// For rehearsals: flips a bit without any report, as defective memory does.
void flip_a_bit(const at::Tensor& weights) {
  const at::NoGradGuard no_gradients;
  constexpr std::int64_t kBit = 1 << 20;                           // a bit of the mantissa, so the value stays finite
  const at::Tensor first = weights.detach().as_strided({1}, {1});  // works for every memory layout
  first.copy_(first.cpu().view(at::kInt).bitwise_xor(kBit).view(at::kFloat));
}

void flip_when_ordered(const TrainingState& state, const Workspace& work) {
  if (work.faults.flips(state.step)) flip_a_bit(state.parameters.front().tensor);
}

void compare(const TrainingState& state, Workspace& work) {
  work.status.at(channel::Stage::kComparing);
  work.pace.in(StepPart::kWaiting, [&] { compare_states(state, work.peers); });
  work.status.at(channel::Stage::kLoading);
}

// Evaluation precedes the save: the checkpoint of a step implies that the step's evaluation is in the log. If comparisons are
// configured, only a compared state is saved. A save that is due by the clock then waits for the next comparison, since only
// rank 0 has that clock.
void follow_step(TrainingState& state, Workspace& work) {
  const bool compares = work.config.ddp.compare_every_steps > 0 && work.peers.world() > 1;
  const bool compared = compares && compares_after(work.length, work.config, state.step);
  if (compared) compare(state, work);
  const bool evaluated = state.evaluation && state.evaluation->step == state.step;
  const bool due = evaluates_after(work.length, work.config, state.step) || owes_evaluation(state.values);
  if (due && !evaluated) evaluate_and_log(state, work);
  const bool may_save = !is_over(state, work.config, work.length) && (compared || !compares);
  if (work.checkpointing && may_save && work.checkpointing->due(state.step)) {
    save(state, work, Checkpointing::Need::kUseful);
  }
}

// Rank 0 saves, and so does each rank that keeps a copy for its node. No rank leaves before that checkpoint is published. The
// ranks wait in short exchanges: a single long one would fail after ddp.timeout_s.
void save_last(const TrainingState& state, Workspace& work) {
  constexpr std::chrono::seconds kBetweenExchanges{1};
  if (work.checkpointing) {
    work.checkpointing->begin_last(state, work.config, work.length, state.bucket_order, work.peers.world());
  }
  bool saved = work.checkpointing == nullptr;
  do {
    if (!saved) {
      saved = work.checkpointing->last_is_saved(kBetweenExchanges);
      if (saved) work.status.enter(channel::Phase::kRunning);
    }
    work.status.at(channel::Stage::kMeeting);
  } while (work.peers.smallest(saved ? 1 : 0) == 0);
}

// Runs one step. A sample that the model cannot use ends the run. The rank that found it first saves the state of the step
// before.
void train_step_or_save(TrainingState& state, Workspace& work) {
  try {
    train_step(state, work);
  } catch (const UsageError&) {
    const bool within = state.stage != TrainingState::Stage::kBetweenSteps;  // otherwise train_step() has saved it already
    if (within && undo_step(state)) save_alone(state, work);
    throw;
  }
}

}  // namespace

Outcome train(TrainingState& state, Workspace& work) {
  work.status.reach(state.step, work.length.epoch_of(state.step));
  work.status.enter(channel::Phase::kRunning);
  work.log.start_clock(state.step);
  // On a GPU the waiting time and the other parts of a step are unknown to this thread.
  const bool knows_parts = work.device.is_cpu();
  work.pace.begin(work.peers.world() > 1 && knows_parts ? work.status.agent() : nullptr, knows_parts);
  flip_when_ordered(state, work);
  if (work.origin == StateOrigin::kSurvivors && state.step > state.started_from) {
    work.log.catch_up(state.figures, state.evaluation);
    follow_step(state, work);
  } else if (owes_evaluation(state.values)) {
    evaluate_and_log(state, work);
  } else if (!is_over(state, work.config, work.length)) {
    evaluate_one_sample(work.task, *state.model, work.data, work.config, work.device, uploads_of(work));
  }

  while (!is_over(state, work.config, work.length)) {
    work.peers.go_on();
    if (work.gate.may_start(state.step) == StopGate::Verdict::kStop) {
      if (state.step == state.started_from) return Outcome::kPreempted;  // nothing new to save since the start
      if (work.trace) work.trace->end(state.step);
      if (work.config.ddp.compare_every_steps > 0) compare(state, work);
      save_last(state, work);
      return Outcome::kPreempted;
    }
    if (work.trace) work.trace->before_step(state.step);
    train_step_or_save(state, work);
    if (work.trace) work.trace->after_step(state.step);
    flip_when_ordered(state, work);
    if (work.checkpointing) work.checkpointing->report_finished();
    follow_step(state, work);
  }
  if (work.trace) work.trace->end(state.step);
  if (state.step < work.length.total_steps) {
    work.log.stopped_early(state.step, reason_to_stop_early(state.values, work.config));
    if (work.config.ddp.compare_every_steps > 0) compare(state, work);
  }
  require_change(state, work);
  save_last(state, work);
  return Outcome::kDone;
}

}  // namespace ddprun::trainer
