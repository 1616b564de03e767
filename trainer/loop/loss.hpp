// What a micro-batch's loss weighs. Every micro-batch's loss is a mean; DDP averages gradients over the ranks; so with
// weight n * W / B for a micro-batch that weighs n (Batch::weight) of the B of the global batch on W ranks, the result is the
// gradient of the mean over the whole global batch, however the batch was split (decision 22).
#pragma once

#include <ATen/core/Tensor.h>

namespace ddprun::trainer {

// Exactly 1 when the shares are equal and whole.
double micro_batch_weight(double weight, int world, double global_weight);

// The loss to run backward through. A weight of exactly 1 multiplies nothing, so the bits are those of plain DDP.
at::Tensor weighted(const at::Tensor& loss, double weight);

}  // namespace ddprun::trainer
