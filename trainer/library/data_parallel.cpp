// Implementation of sdk/include/ddprun/data_parallel.hpp, around ddptrain's DataParallel (trainer/parallel).
#include <torch/nn/module.h>
#include <ddprun/data_parallel.hpp>

#include <chrono>
#include <utility>

#include "common/base/error.hpp"
#include "common/config/train_config.hpp"
#include "trainer/library/group_impl.hpp"
#include "trainer/library/state_impl.hpp"
#include "trainer/loop/loss.hpp"
#include "trainer/loop/step_pace.hpp"
#include "trainer/parallel/data_parallel.hpp"

namespace ddprun {
namespace {

DdpConfig config_of(const DataParallelOptions& options) {
  return {.bucket_mb = options.bucket_mb,
          .first_bucket_mb = options.first_bucket_mb,
          .find_unused_parameters = options.find_unused_parameters,
          .static_graph = options.static_graph};
}

}  // namespace

struct DataParallel::Impl {
  trainer::TrainingState alone;      // used if the caller passed no State
  trainer::TrainingState& training;  // the State that the caller passed, or `alone`
  trainer::DataParallel parallel;
  Group::Impl* inside = nullptr;  // the Job's Group; null if the caller passed a process group instead
  std::chrono::nanoseconds waited{};

  Impl(trainer::TrainingState& state, const c10::intrusive_ptr<c10d::ProcessGroup>& group, const DataParallelOptions& options,
       trainer::DataParallel::State from)
      : training(state), parallel(state.parameters, state.buffers, group, config_of(options), state.bucket_order, from) {}
  Impl(trainer::TrainingState&& state, const c10::intrusive_ptr<c10d::ProcessGroup>& group, const DataParallelOptions& options)
      : alone(std::move(state)),
        training(alone),
        parallel(alone.parameters, alone.buffers, group, config_of(options), {}, trainer::DataParallel::State::kFromRank0) {}
};

DataParallel::DataParallel(State& state, const Group& group, const DataParallelOptions& options)
    : impl_(
          std::make_unique<Impl>(state.impl().training, group.process_group(), options, trainer::DataParallel::State::kEqual)) {
  Group::Impl& inside = group.impl();
  impl_->inside = &inside;
  inside.pace.begin(group.world() > 1 && inside.device.is_cpu() ? inside.place.agent() : nullptr);
}

// The caller owns the module, so the shared pointer below does not own it. Only the module's tensors are used.
DataParallel::DataParallel(torch::nn::Module& model, c10::intrusive_ptr<c10d::ProcessGroup> group,
                           const DataParallelOptions& options) {
  trainer::TrainingState state = trainer::state_of({std::shared_ptr<void>(), &model});
  state.can_undo = false;
  impl_ = std::make_unique<Impl>(std::move(state), group, options);
}

DataParallel::~DataParallel() = default;

void DataParallel::zero_grad() {
  impl_->parallel.zero_grad();
}

at::Tensor DataParallel::backward(const std::function<at::Tensor()>& loss, double weight, Sum sum) {
  Impl& impl = *impl_;
  const bool sync = sum == Sum::kNow;
  // Before the first pass of a step, begin_step() copies the model's buffers and other state that a pass changes. So the step
  // can be undone.
  if (impl.training.stage == trainer::TrainingState::Stage::kBetweenSteps) trainer::begin_step(impl.training);
  trainer::JobPlace* const place = impl.inside ? &impl.inside->place : nullptr;
  if (place) place->status().at(channel::Stage::kForward);
  if (impl.inside && impl.inside->samples_requested_at) {
    impl.inside->pace.loaded(trainer::StepPace::Clock::now() - *std::exchange(impl.inside->samples_requested_at, std::nullopt));
  }
  impl.parallel.before_forward(sync);
  const at::Tensor mean = loss();
  if (!mean.defined() || mean.dim() != 0 || !mean.requires_grad()) {
    throw UsageError("expected a loss that is a scalar and depends on parameters that require gradients, found " +
                     (mean.defined()
                          ? c10::str(mean.scalar_type(), " ", mean.sizes(), mean.requires_grad() ? "" : " without a gradient")
                          : std::string("no tensor")));
  }
  impl.parallel.before_backward(mean, sync);
  if (place) place->status().at(channel::Stage::kBackward);
  trainer::weighted(mean, weight).backward();
  impl.parallel.after_backward(sync);
  if (!sync) return mean.detach();
  const auto waited = impl.parallel.take_waited();
  impl.waited += waited;
  if (place) {
    impl.inside->pace.waited(waited);
    place->peers().sync_device();
    place->status().at(channel::Stage::kOptimizer);
  }
  if (impl.training.bucket_order.empty()) impl.training.bucket_order = impl.parallel.bucket_order();
  return mean.detach();
}

std::chrono::nanoseconds DataParallel::take_waited() {
  return std::exchange(impl_->waited, {});
}

}  // namespace ddprun
