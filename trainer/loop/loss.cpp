#include "trainer/loop/loss.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

namespace ddprun::trainer {

at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& labels, double label_smoothing) {
  return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Mean, /*ignore_index=*/-100, label_smoothing);
}

double micro_batch_weight(double weight, int world, double global_weight) {
  const double scaled = weight * world;
  return scaled == global_weight ? 1.0 : scaled / global_weight;
}

at::Tensor weighted(const at::Tensor& loss, double weight) {
  return weight == 1.0 ? loss : loss.mul(weight);
}

}  // namespace ddprun::trainer
