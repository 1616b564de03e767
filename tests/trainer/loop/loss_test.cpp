// Tests the weights of micro-batches. For every split of the batch into ranks and micro-batches, the average of the weighted
// gradients in DDP must equal the gradient of the mean loss over the whole batch.
#include "trainer/loop/loss.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <vector>

namespace ddprun::trainer {
namespace {

at::Tensor gradient(const at::Tensor& weight, const at::Tensor& inputs, const at::Tensor& labels, double factor) {
  at::Tensor own = weight.detach().clone().requires_grad_(true);
  weighted(at::cross_entropy_loss(inputs.matmul(own), labels, {}, at::Reduction::Mean, -100, 0.1), factor).backward();
  return own.grad();
}

TEST(MicroBatchWeight, IsExactlyOneForEqualBatches) {
  EXPECT_EQ(micro_batch_weight(64, 2, 128), 1.0);
  EXPECT_EQ(micro_batch_weight(1, 1, 1), 1.0);
  EXPECT_EQ(micro_batch_weight(43, 3, 128), 43.0 * 3 / 128);
  EXPECT_EQ(micro_batch_weight(0, 3, 2), 0.0);
  EXPECT_EQ(micro_batch_weight(32, 2, 128), 0.5);  // two ranks, each with two micro-batches
}

TEST(MicroBatchWeight, AWeightOfOneChangesNothing) {
  const at::Tensor loss = at::randn({});
  EXPECT_TRUE(weighted(loss, 1.0).is_same(loss));
}

// Each split lists the numbers of samples as [rank][micro-batch]. The batch has 10 samples.
TEST(MicroBatchWeight, EverySplitGivesTheGradientOfTheWholeBatch) {
  const std::vector<std::vector<std::vector<std::int64_t>>> splits{
      {{10}}, {{5}, {5}}, {{4}, {3}, {3}}, {{3, 2}, {3, 2}}, {{2, 2}, {3}, {1, 1, 1}}, {{7, 1}, {2}}, {{10}, {0}, {0}}};
  const at::Tensor weight = at::randn({6, 4}, at::kDouble);
  const at::Tensor inputs = at::randn({10, 6}, at::kDouble);
  const at::Tensor labels = at::randint(4, {10}, at::kLong);
  const at::Tensor whole = gradient(weight, inputs, labels, 1.0);
  for (const auto& ranks : splits) {
    const int world = static_cast<int>(ranks.size());
    at::Tensor sum = at::zeros_like(weight);
    std::int64_t first = 0;
    for (const auto& micro_batches : ranks) {
      for (const std::int64_t n : micro_batches) {
        const std::int64_t stand_in = n == 0 ? 1 : n;  // a rank without samples gets sample 0 as a stand-in of weight 0
        const std::int64_t begin = n == 0 ? 0 : first;
        sum += gradient(weight, inputs.narrow(0, begin, stand_in), labels.narrow(0, begin, stand_in),
                        micro_batch_weight(static_cast<double>(n), world, 10));
        first += n;
      }
    }
    EXPECT_EQ(first, 10);
    const at::Tensor mean = sum.div(world);
    EXPECT_TRUE(at::allclose(mean, whole, 1e-12, 1e-14)) << "world of " << world;
  }
}

}  // namespace
}  // namespace ddprun::trainer
