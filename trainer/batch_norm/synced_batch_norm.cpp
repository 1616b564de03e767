// Implementation of synced_batch_norm.hpp. ATen's batch norm kernels do the computation on CPU and GPU. They treat the
// statistics as constants. This file computes the statistics over all ranks, and the gradient through them.
#include "trainer/batch_norm/synced_batch_norm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "trainer/batch_norm/rank_exchange.hpp"

namespace ddprun::trainer {
namespace {

using torch::autograd::tensor_list;

// Statistics over the samples of all ranks.
struct Statistics {
  at::Tensor count;  // number of values per channel on all ranks: a double scalar
  at::Tensor mean;   // float32 [channels]; var has the same type and shape
  at::Tensor var;    // biased variance
};

// Combines the statistics of all ranks. The sums are computed in double, so the mean of many nearly equal values loses no
// precision, and counts are exact.
Statistics combine_ranks(const at::Tensor& x, RankExchange& ranks) {
  const std::int64_t channels = x.size(1);
  const at::TensorOptions options(x.device());
  at::Tensor own = at::zeros({2 * channels + 1}, options.dtype(at::kDouble));
  if (ranks.own_counts()) {
    // The results of batch_norm_update_stats() have the type of the running statistics in its arguments. The zero tensors are
    // float32, so the results are float32 too. Momentum 0 leaves these tensors unchanged.
    const auto [mean, var] = at::batch_norm_update_stats(x, at::zeros({channels}, options), at::zeros({channels}, options),
                                                         /*momentum=*/0);
    own.narrow(0, 0, channels).copy_(mean);
    own.narrow(0, channels, channels).copy_(var);
    own.narrow(0, 2 * channels, 1).fill_(static_cast<double>(x.numel() / channels));
  }
  const at::Tensor all = ranks.from_all(own);
  const at::Tensor means = all.narrow(1, 0, channels), vars = all.narrow(1, channels, channels);
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  const at::Tensor count = counts.sum();
  const at::Tensor mean = (counts * means).sum(0) / count;
  const at::Tensor var = (counts * (vars + (means - mean).square())).sum(0) / count;
  return {count, mean.to(at::kFloat), var.to(at::kFloat)};
}

// Updates the running statistics. The unbiased variance of a single value is undefined, so clamp_min() avoids a division by
// zero.
void update(const BatchNormTensors& norm, const Statistics& all) {
  const at::Tensor unbiased = (all.var * (all.count / (all.count - 1).clamp_min(1))).to(at::kFloat);
  norm.running_mean.mul_(1 - norm.momentum).add_(all.mean, norm.momentum);
  norm.running_var.mul_(1 - norm.momentum).add_(unbiased, norm.momentum);
}

// Returns (x - mean) / sqrt(var + eps) * weight + bias.
at::Tensor normalised(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& var, double eps, const at::Tensor& weight,
                      const at::Tensor& bias) {
  return std::get<0>(at::native_batch_norm(x, weight, bias, mean, var, /*training=*/false, /*momentum=*/0, eps));
}

// The data that the forward pass saves for the backward pass, in addition to the saved tensors.
struct ForwardPass : torch::CustomClassHolder {
  std::shared_ptr<RankExchange> ranks;
  bool own_counts = true;
  double eps = 0;
};

struct SyncedBatchNorm : torch::autograd::Function<SyncedBatchNorm> {
  static constexpr const char* kForwardPass = "forward pass";

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const BatchNormTensors& norm, const std::shared_ptr<RankExchange>& ranks) {
    const Statistics all = combine_ranks(x, *ranks);
    update(norm, all);
    auto pass = c10::make_intrusive<ForwardPass>();
    pass->ranks = ranks;
    pass->own_counts = ranks->own_counts();
    pass->eps = norm.eps;
    context->save_for_backward({x, weight, all.mean, all.var, all.count});
    context->saved_data[kForwardPass] = c10::IValue::make_capsule(std::move(pass));
    return normalised(x, all.mean, all.var, norm.eps, weight, bias);
  }

  // A stand-in (a sample of weight 0, used by a rank without samples) does not affect the statistics. So it gets no gradient
  // through the statistics. The computation is in float32, because it subtracts nearly equal numbers.
  static tensor_list backward(torch::autograd::AutogradContext* context, const tensor_list& gradients) {
    const auto kept = context->saved_data[kForwardPass].toCapsule();
    const auto& pass = static_cast<const ForwardPass&>(*kept);
    const tensor_list saved = context->get_saved_variables();
    const at::Tensor &weight = saved[1], &mean = saved[2], &var = saved[3], &count = saved[4];
    const at::Tensor x = saved[0].to(at::kFloat);
    auto [of_x, of_weight, of_bias] =
        at::native_batch_norm_backward(gradients.front().to(at::kFloat), x, weight, mean, var, /*save_mean=*/{},
                                       /*save_invstd=*/{}, /*train=*/false, pass.eps, {true, true, true});
    const at::Tensor own = at::cat({of_weight, of_bias}).to(at::kDouble);
    const at::Tensor means = (pass.ranks->sum(pass.own_counts ? own : own.zero_()) / count).to(at::kFloat);
    if (pass.own_counts) {
      const at::Tensor scale = weight * at::rsqrt(var + pass.eps);
      const std::int64_t channels = mean.numel();
      of_x.sub_(normalised(x, mean, var, pass.eps, scale * means.narrow(0, 0, channels),
                           scale * means.narrow(0, channels, channels)));
    }
    return {of_x.to(saved[0].scalar_type()), of_weight, of_bias, {}, {}};
  }
};

}  // namespace

at::Tensor synced_batch_norm(const at::Tensor& x, const BatchNormTensors& norm, const std::shared_ptr<RankExchange>& ranks) {
  return SyncedBatchNorm::apply(x, norm.weight, norm.bias, norm, ranks);
}

}  // namespace ddprun::trainer
