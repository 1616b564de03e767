#include "trainer/loop/train.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/cost/flop_count.hpp"
#include "trainer/loop/after_step.hpp"
#include "trainer/loop/bad_data.hpp"
#include "trainer/loop/global_metrics.hpp"
#include "trainer/loop/loss.hpp"
#include "trainer/loop/seeds.hpp"
#include "trainer/loop/skipping.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/state/evaluation_rules.hpp"
#include "trainer/state/loss_scale.hpp"
#include "trainer/state/skipped_steps.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {
namespace {

// Injects a fault for a test: kills the process in the middle of the backward pass, when only some gradients have been
// computed.
void arm_backward_fault(TrainingState& state, const Workspace& work) {
  if (!work.faults.due(FaultPhase::kBackward, state.step)) return;
  const std::vector<NamedTensor> trained = trained_parameters(state);
  const at::Tensor& middle = trained[trained.size() / 2].tensor;
  middle.register_hook([&work, step = state.step](const at::Tensor&) { work.faults.at(FaultPhase::kBackward, step); });
}

// Runs the forward pass and returns the loss. A loss in bf16 or fp16, which autocast can return, is converted to fp32. Throws
// UsageError, which names the sample, if a label or a token is out of range.
at::Tensor loss_of(const Workspace& work, torch::nn::Module& model, const Batch& batch, const RankBatch& share) {
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
  throw UsageError(!loss.defined() ? std::string("the task's loss is not a tensor")
                                   : c10::str("the task's loss is ", loss.scalar_type(), " ", loss.sizes(),
                                              loss.requires_grad() ? "" : " without a gradient",
                                              "; expected a Float scalar that depends on parameters that require gradients"));
}

// Throws DivergedError on the CPU for a NaN or infinite loss, unless the config skips such steps. On a GPU, this function does
// nothing, since reading each loss would wait for the GPU. The losses on a GPU are checked only in logged steps
// (global_metrics.hpp).
void check_loss(const at::Tensor& loss, const TrainingState& state, const Workspace& work, const RankBatch& share) {
  if (is_skipped(state.values, work.config)) return;
  if (!work.device.is_cpu() || std::isfinite(*loss.const_data_ptr<float>())) return;
  diverged(state.step, work.peers.rank(), not_finite_in(share, *work.data.train));
}

void record_batch_norm_waits(Workspace& work, StepPart part) {
  if (work.synced) work.pace.move_to_waiting(part, work.synced->take_waited());
}

// Runs the forward and backward passes over this rank's samples of the batch. The gradients are all-reduced during the backward
// pass of the last micro-batch. Returns the mean loss of each micro-batch, on the device. A stand-in (a sample of weight 0)
// adds no loss.
std::vector<at::Tensor> accumulate_gradients(TrainingState& state, Workspace& work, const RankBatch& share) {
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
    record_batch_norm_waits(work, StepPart::kForward);
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
    record_batch_norm_waits(work, StepPart::kBackward);
    if (!batch.stand_in) losses.push_back(loss.detach());
  }
  return losses;
}

// Calls accumulate_gradients(). In the first step in which rank 0 has samples, rank 0 also counts the floating-point operations
// per sample, and passes the count to the log.
std::vector<at::Tensor> accumulate_and_count(TrainingState& state, Workspace& work, const RankBatch& share) {
  if (work.log.knows_flops() || share.samples.empty()) return accumulate_gradients(state, work, share);
  const FlopCount flops;
  std::vector<at::Tensor> losses = accumulate_gradients(state, work, share);
  work.log.set_flops_per_sample(static_cast<double>(flops.counted()) / static_cast<double>(share.samples.size()));
  return losses;
}

// Runs one optimizer step over one global batch: loads this rank's samples, computes the gradients and updates the weights.
void train_step(TrainingState& state, Workspace& work) {
  const TrainConfig& config = work.config;
  const RankBatch share =
      work.pace.in(StepPart::kData, [&] { return with_save_on_data_error(state, work, [&] { return work.loader->next(); }); });
  const bool logs = logs_after(work.length, config, state.step + 1);

  begin_step(state);
  seed_generator(work.device, step_seed(config.seed, state.step, work.peers.rank()));
  work.faults.at(FaultPhase::kStep, state.step);
  arm_backward_fault(state, work);
  const std::vector<at::Tensor> losses = accumulate_and_count(state, work, share);
  work.peers.sync_device();
  work.status.at(channel::Stage::kLoss);
  const bool requests_save_now = work.checkpointing && work.checkpointing->requests_save();
  const auto on_non_finite = is_skipped(state.values, config) ? OnNonFinite::kReport : OnNonFinite::kEndRun;
  const double own_loss = logs ? part_of_loss(losses, share) : 0;
  const GlobalMetrics figures = !logs ? GlobalMetrics{} : work.pace.in(StepPart::kWaiting, [&] {
    return global_metrics(own_loss, requests_save_now, share, work, on_non_finite);
  });

  StepMetrics shown{.loss = figures.loss * work.task.loss_unit(*state.model),
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
  if (skipped) report_skipped_step(state, work, share);
  shown.step = state.step;
  shown.skipped = skipped_steps(state.values);
  // The order of the buckets is known after the first step.
  if (state.bucket_order.empty()) state.bucket_order = work.strategy->bucket_order();
  if (logs) state.figures = shown;
  if (figures.save_is_due && work.checkpointing) work.checkpointing->order();
  work.status.reach(state.step, work.length.epoch_of(state.step));
  if (work.ledger) work.ledger->write(state.step, share.epoch, share.position, share.samples);
  work.pace.move_to_waiting(StepPart::kBackward, work.strategy->take_waited());
  work.pace.done(state.step);
  if (logs) {
    work.log.step(shown, work.pace.take_parts());
  } else {
    work.log.heartbeat(state.step);
  }
}

// Flips one bit of a weight and reports no error, as defective memory does. It is used in rehearsals with injected faults.
void flip_a_bit(const at::Tensor& weights) {
  const at::NoGradGuard no_gradients;
  constexpr std::int64_t kBit = 1 << 20;                           // a bit of the mantissa, so the value stays finite
  const at::Tensor first = weights.detach().as_strided({1}, {1});  // the first element in memory, for every memory layout
  first.copy_(first.cpu().view(at::kInt).bitwise_xor(kBit).view(at::kFloat));
}

void inject_bit_flip(const TrainingState& state, const Workspace& work) {
  if (work.faults.flips(state.step)) flip_a_bit(state.parameters.front().tensor);
}

// Runs one step. If the model cannot use a sample, the run fails. The first rank that finds such a sample saves the state after
// the last finished step, and then throws.
void train_step_or_save(TrainingState& state, Workspace& work) {
  try {
    train_step(state, work);
  } catch (const UsageError&) {
    // If this is false, train_step() has already saved the state.
    const bool within = state.stage != TrainingState::Stage::kBetweenSteps;
    if (within && undo_step(state)) save_without_peers(state, work);
    throw;
  }
}

}  // namespace

Outcome train(TrainingState& state, Workspace& work) {
  work.status.reach(state.step, work.length.epoch_of(state.step));
  work.status.enter(channel::Phase::kRunning);
  work.log.start_clock(state.step);
  // On a GPU this thread only enqueues work, so it cannot measure how long the parts of a step take.
  const bool knows_parts = work.device.is_cpu();
  work.pace.begin(work.peers.world() > 1 && knows_parts ? work.status.agent() : nullptr, knows_parts);
  inject_bit_flip(state, work);
  if (work.origin == StateOrigin::kSurvivors && state.step > state.started_from) {
    work.log.catch_up(state.figures, state.evaluation);
    follow_step(state, work);
  } else if (evaluation_is_missing(state.values)) {
    evaluate_and_log(state, work);
  } else if (!is_over(state, work.config, work.length)) {
    evaluate_one_sample(model_to_evaluate(state, work));
  }

  while (!is_over(state, work.config, work.length)) {
    work.peers.check_alive();
    if (work.gate.may_start(state.step) == StopGate::Verdict::kStop) {
      if (state.step == state.started_from) return Outcome::kPreempted;  // the state has not changed since it was loaded
      if (work.trace) work.trace->end(state.step);
      compare_at_end(state, work);
      save_last(state, work);
      return Outcome::kPreempted;
    }
    if (work.trace) work.trace->before_step(state.step);
    train_step_or_save(state, work);
    if (work.trace) work.trace->after_step(state.step);
    inject_bit_flip(state, work);
    if (work.checkpointing) work.checkpointing->report_finished();
    follow_step(state, work);
  }
  if (work.trace) work.trace->end(state.step);
  if (state.step < work.length.total_steps) {
    work.log.stopped_early(state.step, reason_to_stop_early(state.values, work.config));
    compare_at_end(state, work);
  }
  require_change(state, work);
  save_last(state, work);
  return Outcome::kDone;
}

}  // namespace ddprun::trainer
