// Tests the precision of a model. Autocast ends with the scope that started it, memory layouts change no weight, and the
// description is correct.
#include "trainer/models/precision.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

using Precision = TrainConfig::Precision;

std::shared_ptr<Model> cnn() {
  return make_model({.type = ModelConfig::Type::kCnn, .init = {}}, {1, 8, 8}, 10, 3);
}

at::Tensor images() {
  return at::arange(2 * 64, at::kFloat).sin().reshape({2, 1, 8, 8});
}

TrainConfig with(Precision precision, bool channels_last = false) {
  TrainConfig config;
  config.precision = precision;
  config.channels_last = channels_last;
  return config;
}

at::Tensor logits(Model& model, Precision precision, const at::Tensor& of = images()) {
  const Autocast autocast(precision, at::kCPU);
  return forward(model, of, false);
}

TEST(Precision, Bf16UsesAutocastAndRestoresIt) {
  const c10::NoGradGuard no_grad;
  const auto model = cnn();
  const at::Tensor exact = logits(*model, Precision::kFp32);
  const at::Tensor rounded = logits(*model, Precision::kBf16);
  EXPECT_EQ(rounded.scalar_type(), at::kFloat);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_FALSE(rounded.equal(exact)) << "nothing was rounded";
  EXPECT_TRUE(rounded.equal(rounded.to(at::kBFloat16).to(at::kFloat))) << "the last layer computes in bf16";
  EXPECT_TRUE(at::allclose(rounded, exact, 0.02, 0.01));
  EXPECT_TRUE(logits(*model, Precision::kFp32).equal(exact)) << "nothing is left of it";
}

TEST(Precision, Bf16GivesFloat32Gradients) {
  const auto model = cnn();
  logits(*model, Precision::kBf16).sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_EQ(parameter->grad().scalar_type(), at::kFloat) << parameter.key();
  }
}

TEST(Precision, DeterministicModeRefusesNondeterministicOperators) {
  TrainConfig config;
  EXPECT_EQ(precision_text(config, c10::kCPU), "fp32");
  config.deterministic = config.channels_last = true;
  EXPECT_EQ(precision_text(config, c10::kCPU), "fp32 channels_last deterministic");
  const auto put_twice = [] {
    at::Tensor values = at::zeros({3});
    values.put_(at::zeros({2}, at::kLong), at::arange(2, at::kFloat), /*accumulate=*/false);
  };
  use_determinism(true);
  EXPECT_THROW(put_twice(), c10::Error);
  EXPECT_NO_THROW(logits(*cnn(), Precision::kFp32));
  use_determinism(false);
  EXPECT_NO_THROW(put_twice());
}

TEST(Precision, AnErrorInTheModelRestoresAutocast) {
  const auto model = cnn();
  EXPECT_ANY_THROW(logits(*model, Precision::kBf16, at::arange(3, at::kFloat)));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(Precision, ChannelsLastChangesNoWeightsOrLogits) {
  const c10::NoGradGuard no_grad;
  const auto plain = cnn();
  const auto model = cnn();
  lay_out(*model, true);
  for (const auto& parameter : model->named_parameters()) {
    EXPECT_TRUE(parameter->equal(plain->named_parameters()[parameter.key()])) << parameter.key();
    EXPECT_TRUE(parameter->dim() != 4 || parameter->is_contiguous(at::MemoryFormat::ChannelsLast)) << parameter.key();
  }
  EXPECT_FALSE(model->named_parameters()["conv2.weight"].is_contiguous());
  EXPECT_TRUE(at::allclose(forward(*model, images(), true), forward(*plain, images(), false), 1e-4, 1e-5));
}

// For a tensor with one channel, contiguous() does not change the strides. Kernels that check the strides then assume that the
// tensor is not in the channels-last layout. On a GPU, a slow kernel was therefore selected for the first batch norm.
TEST(Precision, ChannelsLastAppliesToOneChannelAndOnePixel) {
  const auto suggested = [](const at::Tensor& tensor) { return tensor.suggest_memory_format(); };
  EXPECT_EQ(suggested(images().contiguous(at::MemoryFormat::ChannelsLast)), at::MemoryFormat::Contiguous)
      << "so nothing is to be done";
  EXPECT_EQ(suggested(in_channels_last(images())), at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(in_channels_last(images()).equal(images()));
  const at::Tensor of_one_pixel = at::arange(15, at::kFloat).reshape({5, 3, 1, 1});
  EXPECT_EQ(suggested(in_channels_last(of_one_pixel)), at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(in_channels_last(of_one_pixel).equal(of_one_pixel));
  const auto model = cnn();
  lay_out(*model, true);
  for (const auto& parameter : model->named_parameters()) {
    if (parameter->dim() != 4) continue;
    EXPECT_EQ(suggested(*parameter), at::MemoryFormat::ChannelsLast) << parameter.key();
  }
}

// PyTorch allows TF32 in convolutions by default, so fp32 must switch it off.
TEST(Precision, Fp32AppliesToConvolutionsToo) {
  use_precision(Precision::kFp32);
  EXPECT_FALSE(at::globalContext().allowTF32CuDNN());
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  use_precision(Precision::kTf32);
  EXPECT_TRUE(at::globalContext().allowTF32CuDNN());
  EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
  use_precision(Precision::kBf16);
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
}

TEST(Precision, TextDependsOnTheDevice) {
  const c10::Device gpu(c10::kCUDA, 0);
  EXPECT_EQ(precision_text(with(Precision::kFp32), c10::kCPU), "fp32");
  EXPECT_EQ(precision_text(with(Precision::kTf32), c10::kCPU), "fp32");
  EXPECT_EQ(precision_text(with(Precision::kTf32), gpu), "tf32");
  EXPECT_EQ(precision_text(with(Precision::kBf16, true), gpu), "bf16 channels_last");
}

}  // namespace
}  // namespace ddprun::trainer
