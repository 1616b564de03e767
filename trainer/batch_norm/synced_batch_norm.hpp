// Batch norm whose statistics are those of all ranks' samples together, which LibTorch lacks: torch.nn.SyncBatchNorm of Python,
// for the CPU as well. The module of batch_norm.hpp calls it.
//
// Forward: each rank computes mean and variance of its own samples, all get everybody's with the number of values, and combine
// them (Chan et al. 1979): unlike sums of squares, that loses nothing where the mean is large. Backward: the sums of the
// gradient, and of the gradient times the normalised input, are summed over the ranks. Weight and bias get the gradient of this
// rank's samples, as other parameters do: DDP sums them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace ddprun::trainer {

class RankExchange;

struct BatchNormTensors {
  at::Tensor weight{};
  at::Tensor bias{};
  at::Tensor running_mean{};
  at::Tensor running_var{};  // without bias: by the number of values of all ranks, less one
  double momentum = 0.1;
  double eps = 1e-5;
};

// x [n, channels, height, width] in any memory layout, which the result has too; float32, or what autocast made of it:
// statistics are float32 in any case. Collective in forward, and in backward where something needs a gradient.
at::Tensor synced_batch_norm(const at::Tensor& x, const BatchNormTensors& norm, const std::shared_ptr<RankExchange>& ranks);

}  // namespace ddprun::trainer
