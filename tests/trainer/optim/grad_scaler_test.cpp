// Compares the rule of the loss scale with the kernels of PyTorch, over a series of steps.
#include "trainer/optim/grad_scaler.hpp"

#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <string_view>

namespace ddprun::trainer {
namespace {

TEST(GradScaler, ScaleMatchesPyTorchAfterEachStep) {
  // The factors are not powers of two, so the scale is rounded. The second initial scale is so large that it cannot grow
  // without an overflow of float32.
  for (const double init : {65536.0, 3e38}) {
    const GradScalerConfig config{.init_scale = init, .growth_factor = 1.7, .backoff_factor = 0.3, .growth_interval = 3};
    GradScale ours = initial_grad_scale(config);
    at::Tensor scale = at::full({}, init, at::kFloat), tracker = at::zeros({}, at::kInt);
    for (const char step : std::string_view("gggggbggbbggggggg")) {
      const at::Tensor found = at::full({}, step == 'b' ? 1.0 : 0.0, at::kFloat);
      at::_amp_update_scale_(scale, tracker, found, config.growth_factor, config.backoff_factor, config.growth_interval);
      ours = after_gradients(config, ours, step == 'g');
      EXPECT_EQ(ours.scale, scale.item<float>());
      EXPECT_EQ(ours.growth_tracker, tracker.item<int>());
    }
  }
}

TEST(GradScaler, UnscalesGradientsAndFindsNonFiniteOnes) {
  const at::Tensor fine = at::zeros({2}), without = at::zeros({2}), bad = at::zeros({3});
  fine.mutable_grad() = at::full({2}, 6.0F);
  EXPECT_TRUE(unscale({fine, without}, 4));
  EXPECT_TRUE(fine.mutable_grad().equal(at::full({2}, 1.5F)));
  bad.mutable_grad() = at::full({3}, std::numeric_limits<float>::infinity());
  EXPECT_FALSE(unscale({fine, bad}, 4));
  bad.mutable_grad() = at::full({3}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(unscale({bad, fine}, 4));
  EXPECT_TRUE(unscale({without}, 4));
}

}  // namespace
}  // namespace ddprun::trainer
