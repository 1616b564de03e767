// Tests the language models: their results, parameter names and initial weights. The expected results (golden.json) come from
// the same networks in Python, where attention is computed step by step.
#include "trainer/models/gpt.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "tests/trainer/models/golden.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::int64_t kVocabulary = 11, kPositions = 6;

ModelConfig small_gpt() {
  return {.type = ModelConfig::Type::kGpt, .n_layer = 2, .n_head = 2, .n_embd = 8, .init = {}};
}

// Returns a model whose weights come from a formula, which make_golden.py also uses.
std::shared_ptr<Gpt> with_closed_form() {
  const c10::NoGradGuard no_grad;
  const auto model = make_gpt(small_gpt(), kVocabulary, kPositions, 1);
  std::map<const void*, bool> seen;
  double k = 0;
  for (const auto& parameter : model->named_parameters()) {
    if (std::exchange(seen[parameter->unsafeGetTensorImpl()], true)) continue;
    const bool is_scale = parameter.key().find(".ln_") != std::string::npos && parameter.key().ends_with(".weight");
    const at::Tensor values = (at::arange(parameter->numel(), at::kDouble) + k++).sin().mul(0.05).to(at::kFloat);
    parameter->copy_((values.reshape(parameter->sizes()) * 20) + (is_scale ? 1 : 0));
  }
  return model;
}

at::Tensor tokens() {
  return at::arange(10).mul(7).remainder(11).reshape({2, 5});
}

void expect_logits(const at::Tensor& logits, double relative, const char* model = "gpt") {
  const nlohmann::json& expected = golden()[model]["logits"];
  ASSERT_EQ(logits.sizes(), (std::vector<std::int64_t>{2, 5, kVocabulary}));
  double largest = 0;
  for (const nlohmann::json& logit : expected) largest = std::max(largest, std::abs(logit.get<double>()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(logits.flatten()[static_cast<std::int64_t>(i)].item<double>(), expected[i].get<double>(), relative * largest)
        << i;
  }
}

TEST(Gpt, MatchesPythonsLogits) {
  const c10::NoGradGuard no_grad;
  at::set_num_threads(1);
  const auto model = with_closed_form();
  expect_logits(model->forward(tokens()), 1e-5);
  model->to(at::kDouble);
  expect_logits(model->forward(tokens()), 1e-12);
}

TEST(Gpt, UsesHuggingFaceNamesShapesAndTiedHead) {
  const auto model = make_gpt(small_gpt(), kVocabulary, kPositions, 1);
  const auto parameters = model->named_parameters();
  const nlohmann::json& expected = golden()["gpt"]["parameters"];
  ASSERT_EQ(parameters.size(), expected.size() + 1);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(parameters[i].key(), expected[i][0]);
    EXPECT_EQ(parameters[i]->sizes().vec(), expected[i][1].get<std::vector<std::int64_t>>()) << parameters[i].key();
  }
  EXPECT_EQ(parameters[expected.size()].key(), "lm_head.weight");
  EXPECT_TRUE(parameters["lm_head.weight"].is_same(parameters["transformer.wte.weight"]));
}

TEST(Gpt, InitializesLikeGpt2FromASeed) {
  const ModelConfig config{.type = ModelConfig::Type::kGpt, .n_layer = 8, .n_head = 2, .n_embd = 64, .init = {}};
  const auto one = make_gpt(config, 100, 32, 7)->named_parameters(), other = make_gpt(config, 100, 32, 7)->named_parameters();
  for (const auto& parameter : one) {
    EXPECT_TRUE(at::equal(parameter.value(), other[parameter.key()])) << parameter.key();
    const double spread = parameter->detach().std().item<double>();
    if (parameter.key().ends_with(".bias")) {
      EXPECT_EQ(spread, 0) << parameter.key();
    } else if (parameter.key().find(".ln_") == std::string::npos) {
      EXPECT_NEAR(spread, parameter.key().ends_with("c_proj.weight") ? 0.02 / 4 : 0.02, 0.001) << parameter.key();
    }
  }
  EXPECT_FALSE(
      at::equal(one["transformer.wte.weight"], make_gpt(config, 100, 32, 8)->named_parameters()["transformer.wte.weight"]));
}

TEST(Gpt, ATokenAttendsToNoLaterOne) {
  const c10::NoGradGuard no_grad;
  const auto model = with_closed_form();
  const at::Tensor whole = model->forward(tokens()), begin = model->forward(tokens().narrow(1, 0, 3));
  EXPECT_LT((whole.narrow(1, 0, 3) - begin).abs().max().item<double>(), 1e-5 * whole.abs().max().item<double>());
}

TEST(Gpt, DropoutActsInTrainingOnly) {
  const c10::NoGradGuard no_grad;
  ModelConfig config = small_gpt();
  config.dropout = 0.5;
  const auto model = make_gpt(config, kVocabulary, kPositions, 1);
  EXPECT_FALSE(at::equal(model->forward(tokens()), model->forward(tokens())));
  model->eval();
  EXPECT_TRUE(at::equal(model->forward(tokens()), model->forward(tokens())));
}

TEST(Gpt, HeadsOfUnequalWidthAreRefused) {
  ModelConfig config = small_gpt();
  config.n_head = 3;
  try {
    make_gpt(config, kVocabulary, kPositions, 1);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "model.n_embd 8 is not divisible by model.n_head 3, but all heads need the same width");
  }
}

ModelConfig small_llama() {
  return {
      .type = ModelConfig::Type::kLlama, .n_layer = 2, .n_head = 4, .n_embd = 16, .n_kv_head = 2, .n_inner = 24, .init = {}};
}

TEST(Llama, MatchesPythonsLogits) {
  const c10::NoGradGuard no_grad;
  at::set_num_threads(1);
  const auto model = make_llama(small_llama(), kVocabulary, 1);
  double k = 0;
  for (const auto& parameter : model->named_parameters()) {
    const bool is_scale = parameter.key().find("norm") != std::string::npos;
    const at::Tensor values = (at::arange(parameter->numel(), at::kDouble) + k++).sin().mul(0.05).to(at::kFloat);
    parameter->copy_((values.reshape(parameter->sizes()) * 10) + (is_scale ? 1 : 0));
  }
  expect_logits(model->forward(tokens()), 1e-5, "llama");
  model->to(at::kDouble);
  expect_logits(model->forward(tokens()), 1e-12, "llama");
}

TEST(Llama, UsesHuggingFaceNamesAndShapes) {
  const auto parameters = make_llama(small_llama(), kVocabulary, 1)->named_parameters();
  const nlohmann::json& expected = golden()["llama"]["parameters"];
  ASSERT_EQ(parameters.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(parameters[i].key(), expected[i][0]);
    EXPECT_EQ(parameters[i]->sizes().vec(), expected[i][1].get<std::vector<std::int64_t>>()) << parameters[i].key();
  }
}

TEST(Llama, ATiedHeadSharesTheEmbedding) {
  ModelConfig config = small_llama();
  config.tie_word_embeddings = true;
  const auto parameters = make_llama(config, kVocabulary, 1)->named_parameters();
  EXPECT_TRUE(parameters["lm_head.weight"].is_same(parameters["model.embed_tokens.weight"]));
}

TEST(Llama, DefaultWidthsAreThoseOfLlama) {
  ModelConfig config = small_llama();
  config.n_embd = 4096;
  config.n_head = 32;
  config.n_layer = 1;
  config.n_kv_head = config.n_inner = 0;
  const auto parameters = make_llama(config, 2, 1)->named_parameters();
  EXPECT_EQ(parameters["model.layers.0.mlp.up_proj.weight"].size(0), 11008);  // the width of the MLP in Llama's 7B model
  EXPECT_EQ(parameters["model.layers.0.self_attn.k_proj.weight"].size(0), 4096);
}

TEST(Llama, InitializesBitwiseFromASeed) {
  const ModelConfig config{.type = ModelConfig::Type::kLlama, .n_layer = 2, .n_head = 2, .n_embd = 64, .init = {}};
  const auto one = make_llama(config, 100, 7)->named_parameters(), other = make_llama(config, 100, 7)->named_parameters();
  for (const auto& parameter : one) {
    EXPECT_TRUE(at::equal(parameter.value(), other[parameter.key()])) << parameter.key();
    const bool is_scale = parameter.key().find("norm") != std::string::npos;
    EXPECT_NEAR(parameter->detach().std().item<double>(), is_scale ? 0 : 0.02, 0.001) << parameter.key();
  }
  EXPECT_FALSE(at::equal(one["lm_head.weight"], make_llama(config, 100, 8)->named_parameters()["lm_head.weight"]));
}

TEST(Llama, InvalidHeadCountsAreRefused) {
  const auto refused = [](std::int64_t width, std::int64_t heads, std::int64_t shared) -> std::string {
    ModelConfig config = small_llama();
    config.n_embd = width;
    config.n_head = heads;
    config.n_kv_head = shared;
    try {
      make_llama(config, kVocabulary, 1);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused(16, 3, 1), "model.n_embd 16 is not divisible by model.n_head 3, but all heads need the same width");
  EXPECT_EQ(
      refused(12, 4, 1),
      "model.n_embd 12 divided by model.n_head 4 is odd, but rotary positions rotate pairs of values: expected an even number");
  EXPECT_EQ(refused(16, 4, 3), "model.n_head 4 is not divisible by model.n_kv_head 3");
}

}  // namespace
}  // namespace ddprun::trainer
