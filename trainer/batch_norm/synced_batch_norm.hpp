// Batch norm with statistics over the samples of all ranks: Python's torch.nn.SyncBatchNorm, which LibTorch lacks, and here
// also on the CPU. The module of batch_norm.hpp calls it.
//
// Forward: each rank computes mean and variance of its own samples. All ranks receive these with the number of values, and
// combine them (Chan et al. 1979). Unlike sums of squares, this loses no precision if the mean is large. Backward: the sums of
// the gradient, and of the gradient times the normalised input, are summed over the ranks. Weight and bias get the gradient of
// this rank's samples, as other parameters do: DDP sums them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace ddprun::trainer {

class RankExchange;

struct BatchNormTensors {
  at::Tensor weight{};
  at::Tensor bias{};
  at::Tensor running_mean{};
  at::Tensor running_var{};  // unbiased: divided by the number of values of all ranks minus one
  double momentum = 0.1;
  double eps = 1e-5;
};

// x is [n, channels, height, width] in any memory layout; the result has the same layout. It is float32, or autocast's type;
// statistics are always float32. Collective in forward, and in backward if a gradient is required.
at::Tensor synced_batch_norm(const at::Tensor& x, const BatchNormTensors& norm, const std::shared_ptr<RankExchange>& ranks);

}  // namespace ddprun::trainer
