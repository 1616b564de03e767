#include "trainer/loop/loss.hpp"

namespace ddprun::trainer {

double micro_batch_weight(double weight, int world, double global_weight) {
  const double scaled = weight * world;
  return scaled == global_weight ? 1.0 : scaled / global_weight;
}

at::Tensor weighted(const at::Tensor& loss, double weight) {
  return weight == 1.0 ? loss : loss.mul(weight);
}

}  // namespace ddprun::trainer
