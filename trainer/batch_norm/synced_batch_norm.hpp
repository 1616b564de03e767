// Batch norm with statistics over the samples of all ranks, like Python's torch.nn.SyncBatchNorm, which LibTorch lacks. Unlike
// the Python class, this function also works on the CPU. The module in batch_norm.hpp calls it.
//
// Forward: each rank computes the mean and variance of its samples. An all-gather sends them, with the number of values, to all
// ranks. Each rank combines them by the formula of Chan et al. (1979). Unlike sums of squares, this formula loses no precision
// if the mean is large. Backward: an all-reduce sums the gradient, and the gradient times the normalized input. The gradients
// of weight and bias cover only this rank's samples. DDP sums them over the ranks, as for any other parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace ddprun::trainer {

class RankExchange;

struct BatchNormTensors {
  at::Tensor weight{};
  at::Tensor bias{};
  at::Tensor running_mean{};
  at::Tensor running_var{};  // running variance, unbiased: the divisor is the number of values on all ranks, minus one
  double momentum = 0.1;
  double eps = 1e-5;
};

// `x` is [n, channels, height, width] in any memory layout; the result has the same layout. The type of the result is float32,
// or autocast's type; statistics are always float32. The forward pass is a collective, and so is the backward pass.
at::Tensor synced_batch_norm(const at::Tensor& x, const BatchNormTensors& norm, const std::shared_ptr<RankExchange>& ranks);

}  // namespace ddprun::trainer
