// The weight of a micro-batch's loss. Every micro-batch's loss is a mean, and DDP averages gradients over the ranks. Let W be
// the number of ranks and B the weight of the global batch. A micro-batch of weight n (Batch::weight) gets the weight n * W /
// B. The result is then the gradient of the mean over the whole global batch, however it was split (decision 22).
#pragma once

#include <ATen/core/Tensor.h>

namespace ddprun::trainer {

// Returns exactly 1 if all ranks have equal shares and one micro-batch each.
double micro_batch_weight(double weight, int world, double global_weight);

// Returns the loss for the backward pass. A weight of exactly 1 multiplies nothing, so the bits are those of plain DDP.
at::Tensor weighted(const at::Tensor& loss, double weight);

}  // namespace ddprun::trainer
