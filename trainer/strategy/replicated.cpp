#include "trainer/strategy/replicated.hpp"

#include "trainer/optim/optimizer.hpp"
#include "trainer/state/loss_scale.hpp"

namespace ddprun::trainer {
namespace {

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& entries) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& entry : entries) tensors.push_back(entry.tensor);
  return tensors;
}

}  // namespace

Replicated::Replicated(const TrainingState& state, const TrainConfig& config, const Peers& peers, StateOrigin origin)
    : config_(config),
      on_cpu_(state.device == "cpu"),
      trained_(tensors_of(trained_parameters(state))),
      parallel_(state.parameters, state.buffers, peers.group(), config.ddp, state.bucket_order,
                origin == StateOrigin::kSurvivors ? DataParallel::State::kEqual : DataParallel::State::kFromRank0) {}

Gradients Replicated::agree(const StateValues& values, bool norm_wanted) {
  const bool finite = unscale_gradients(trained_, values, config_);
  return {.finite = finite, .norm = clip(norm_wanted)};
}

// Clips the gradients. Returns their norm before clipping, but only if `norm_wanted` is true. Otherwise the result has no
// meaning.
double Replicated::clip(bool norm_wanted) {
  const double most = config_.clip_grad_norm;
  const double limit = config_.clip_grad_value;
  at::Tensor norm;
  if (norm_wanted && (limit > 0 || !(most > 0))) norm = grad_norm(trained_);
  if (limit > 0) clip_grad_value(trained_, limit);
  if (most > 0) {
    if (on_cpu_) {
      const double before = clip_grad_norm(trained_, most);
      if (!(limit > 0)) return before;
    } else {
      const at::Tensor before = clip_grad_norm_on_device(trained_, most);
      if (!(limit > 0)) norm = before;
    }
  }
  return norm_wanted && norm.defined() ? static_cast<double>(norm.item<float>()) : 0;
}

}  // namespace ddprun::trainer
