// The weight of a micro-batch's loss. The loss of a micro-batch is the mean over its samples, and DDP averages gradients over
// the ranks. If micro-batches differ in size, the plain average of their gradients would favor the samples of small
// micro-batches.
//
// Let W be the number of ranks and B the weight of the global batch. The loss of a micro-batch of weight n (Batch::weight) is
// multiplied by n * W / B. The averaged gradient is then the gradient of the mean loss over the global batch. It does not
// depend on how the batch is split.
//
// Example: 2 ranks, and a global batch of 3 samples. Rank 0 has 2 samples, so its factor is 2 * 2 / 3 = 4/3. The factor of rank
// 1 is 1 * 2 / 3 = 2/3. DDP computes (4/3 a + 2/3 b) / 2 = 2/3 a + 1/3 b from the mean gradients a and b.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddprun::trainer {

// Returns the factor n * W / B. It is exactly 1 if each rank has one micro-batch and all ranks have equal numbers of samples.
inline double micro_batch_weight(double weight, int world, double global_weight) {
  const double scaled = weight * world;
  return scaled == global_weight ? 1.0 : scaled / global_weight;
}

// Returns the loss for the backward pass. With a weight of exactly 1 there is no multiplication, as in PyTorch's DDP.
inline at::Tensor weighted(const at::Tensor& loss, double weight) {
  return weight == 1.0 ? loss : loss.mul(weight);
}

}  // namespace ddprun::trainer
