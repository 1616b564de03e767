// Tests the operation counts of PyTorch's operators. The formulas are the same as in torch.utils.flop_counter.
// test_step_parts.py compares the counts of whole models with the counts of torch.utils.flop_counter.
#include "trainer/cost/flop_count.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace ddprun::trainer {
namespace {

std::int64_t flops_of(const std::function<void()>& work) {
  const FlopCount count;
  work();
  return count.counted();
}

at::Tensor wanted(at::IntArrayRef sizes) {
  return at::ones(sizes).set_requires_grad(true);
}

TEST(FlopCount, CountsMatrixProducts) {
  EXPECT_EQ(flops_of([] { at::mm(at::ones({3, 4}), at::ones({4, 5})); }), 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_of([] { at::addmm(at::ones({5}), at::ones({3, 4}), at::ones({4, 5})); }), 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_of([] { at::bmm(at::ones({2, 3, 4}), at::ones({2, 4, 5})); }), 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_of([] { at::baddbmm(at::ones({2, 3, 5}), at::ones({2, 3, 4}), at::ones({2, 4, 5})); }), 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_of([] { at::relu(at::ones({100})); }), 0);
}

TEST(FlopCount, CountsALinearLayerForwardAndBackward) {
  const std::int64_t once = 2 * 7 * 4 * 5;
  EXPECT_EQ(flops_of([] { at::linear(wanted({7, 4}), wanted({5, 4}), wanted({5})).sum().backward(); }), 3 * once);
  EXPECT_EQ(flops_of([] {
              at::linear(at::ones({7, 4}), wanted({5, 4}), wanted({5})).sum().backward();
            }),
            2 * once)
      << "no gradient of the input";
}

TEST(FlopCount, CountsConvolutions) {
  // The input is 2 images of 6 x 8 with 4 channels. A 3 x 3 filter in 2 groups, with stride 2 and padding, gives 10 channels of
  // 3 x 4 outputs.
  const std::int64_t once = 2 * (2 * 10 * 3 * 4) * (2 * 3 * 3);
  const auto convolve = [](const at::Tensor& input) { return at::conv2d(input, wanted({10, 2, 3, 3}), {}, 2, 1, 1, 2); };
  EXPECT_EQ(flops_of([&] { convolve(at::ones({2, 4, 6, 8})); }), once);
  EXPECT_EQ(flops_of([&] { convolve(at::ones({2, 4, 6, 8})).sum().backward(); }), 2 * once);
  EXPECT_EQ(flops_of([&] { convolve(wanted({2, 4, 6, 8})).sum().backward(); }), 3 * once);
  // In a transposed convolution each input element is multiplied by a filter of 5 channels x 2 x 2.
  const std::int64_t up = 2 * (3 * 4 * 7 * 7) * (5 * 2 * 2);
  EXPECT_EQ(flops_of([] { at::conv_transpose2d(wanted({3, 4, 7, 7}), wanted({4, 5, 2, 2}), {}, 2).sum().backward(); }), 3 * up);
}

TEST(FlopCount, CountsAttention) {
  // The input has 2 texts, 3 heads, 16 positions and width 8. The forward pass has 2 products: the scores and their weighted
  // sum. The backward pass has 5 products: one recomputes the scores, and four compute gradients.
  const std::int64_t product = 2 * 2 * 3 * 16 * 16 * 8;
  const auto attend = [] {
    return at::scaled_dot_product_attention(wanted({2, 3, 16, 8}), wanted({2, 3, 16, 8}), wanted({2, 3, 16, 8}));
  };
  EXPECT_EQ(flops_of([&] { attend(); }), 2 * product);
  EXPECT_EQ(flops_of([&] { attend().sum().backward(); }), 7 * product);
}

TEST(FlopCount, CountsOnlyItsThreadAndLifetime) {
  const auto work = [] { at::mm(at::ones({3, 4}), at::ones({4, 5})); };
  EXPECT_EQ(flops_of([&] { std::thread(work).join(); }), 0);
  const std::int64_t before = flops_of([] {});
  work();
  EXPECT_EQ(before, 0);
  EXPECT_EQ(flops_of([] {}), 0);
}

}  // namespace
}  // namespace ddprun::trainer
