// Tests that a recomputed block is bit-identical to a block that keeps its activations. This includes its gradients, and the
// random numbers that are drawn after it.
#include "trainer/models/recomputed.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <string>
#include <vector>

#include "trainer/models/gpt.hpp"
#include "trainer/models/model.hpp"
#include "trainer/models/precision.hpp"

namespace ddprun::trainer {
namespace {

void seed(std::uint64_t value) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(value);
}

TEST(Recomputed, RecomputesInBackwardWithTheSameDraws) {
  torch::nn::Linear layer(4, 4);
  std::vector<at::Tensor> results;
  std::vector<bool> keeps;
  const auto block = [&](const at::Tensor& x) {
    keeps.push_back(c10::GradMode::is_enabled());
    results.push_back(at::dropout(layer(x), 0.5, /*train=*/true));
    return results.back();
  };
  seed(3);
  const at::Tensor y = recomputed(*layer, at::ones({2, 4}), block, /*draws=*/true);
  const at::Tensor drawn = at::rand({3});
  EXPECT_EQ(keeps, (std::vector{false})) << "nothing is kept";
  y.sum().backward();
  ASSERT_EQ(keeps, (std::vector{false, true}));
  EXPECT_TRUE(at::equal(results[0], results[1]));
  EXPECT_TRUE(layer->weight.grad().defined());
  const at::Tensor after = at::rand({3});
  seed(3);
  at::dropout(at::ones({2, 4}), 0.5, true);
  EXPECT_TRUE(at::equal(at::rand({3}), drawn)) << "as if it had been called once";
  EXPECT_TRUE(at::equal(at::rand({3}), after)) << "the second call leaves the generator as it was";
}

TEST(Recomputed, RecomputesNothingWithoutGradients) {
  const c10::NoGradGuard no_grad;
  torch::nn::Linear layer(4, 4);
  int calls = 0;
  const auto block = [&](const at::Tensor& x) {
    ++calls;
    return layer(x);
  };
  EXPECT_TRUE(at::equal(recomputed(*layer, at::ones({2, 4}), block, true), layer(at::ones({2, 4}))));
  EXPECT_EQ(calls, 1);
}

std::map<std::string, at::Tensor> gradients(ModelConfig config, bool recomputes, TrainConfig::Precision precision,
                                            const char* frozen) {
  config.activation_checkpointing = recomputes;
  const auto model = make_language_model(config, 11, 16, 1);
  for (auto& parameter : model->named_parameters()) {
    if (parameter.key().find(frozen) == 0) parameter->requires_grad_(false);
  }
  seed(5);
  const at::Tensor tokens = at::randint(11, {3, 16}, at::kLong);
  at::Tensor loss;
  {
    const Autocast autocast(precision, c10::kCPU);
    loss = model->forward(tokens).to(at::kFloat).square().mean();
  }
  loss.backward();
  std::map<std::string, at::Tensor> found{{"drawn afterwards", at::rand({2})}, {"loss", loss.detach()}};
  for (const auto& parameter : model->named_parameters()) {
    if (parameter->grad().defined()) found[parameter.key()] = parameter->grad();
  }
  return found;
}

TEST(Recomputed, VitKeepsItsBits) {
  at::set_num_threads(1);
  std::vector<std::vector<at::Tensor>> found;
  for (const bool recomputes : {false, true}) {
    ModelConfig config{.type = ModelConfig::Type::kVit, .dropout = 0.3, .n_layer = 3, .n_head = 2, .n_embd = 8, .init = {}};
    config.activation_checkpointing = recomputes;
    const auto model = make_model(config, {.channels = 3, .height = 8, .width = 8}, 5, 1);
    seed(5);
    model->forward(at::rand({2, 3, 8, 8})).square().mean().backward();
    std::vector<at::Tensor>& all = found.emplace_back(std::vector{at::rand({2})});
    for (const at::Tensor& parameter : model->parameters()) all.push_back(parameter.grad());
  }
  ASSERT_EQ(found[0].size(), found[1].size());
  for (std::size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(at::equal(found[0][i], found[1][i])) << i;
}

TEST(Recomputed, LanguageModelKeepsItsBits) {
  at::set_num_threads(1);
  const ModelConfig gpt{.type = ModelConfig::Type::kGpt, .dropout = 0.3, .n_layer = 3, .n_head = 2, .n_embd = 8, .init = {}};
  ModelConfig updated = gpt;
  updated.lora = {.rank = 2};
  const ModelConfig llama{
      .type = ModelConfig::Type::kLlama, .n_layer = 3, .n_head = 4, .n_embd = 16, .n_kv_head = 2, .n_inner = 24, .init = {}};
  for (const ModelConfig& config : {gpt, updated, llama}) {
    for (const auto precision : {TrainConfig::Precision::kFp32, TrainConfig::Precision::kBf16}) {
      for (const char* frozen : {"none", "transformer.w", "model.embed"}) {
        const auto plain = gradients(config, false, precision, frozen), again = gradients(config, true, precision, frozen);
        ASSERT_EQ(plain.size(), again.size());
        EXPECT_GT(plain.size(), 6U);
        for (const auto& [name, gradient] : plain) EXPECT_TRUE(at::equal(gradient, again.at(name))) << name << ", " << frozen;
      }
    }
  }
}

}  // namespace
}  // namespace ddprun::trainer
