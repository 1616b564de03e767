// Tests to which tokens a token attends. One model caches keys and values, and another model has several texts in its window.
// Both models must have the same results as a plain pass over each text.
#include "trainer/models/text_context.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/models/gpt.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::int64_t kTokenKinds = 11, kMaxTokens = 16;

// The weights are 20 times as large as initial weights, so that the context changes the results visibly.
std::vector<std::shared_ptr<Gpt>> both_models(at::ScalarType type) {
  const c10::NoGradGuard no_grad;
  at::set_num_threads(1);
  const ModelConfig gpt{.type = ModelConfig::Type::kGpt, .n_layer = 2, .n_head = 2, .n_embd = 8, .init = {}};
  const ModelConfig llama{
      .type = ModelConfig::Type::kLlama, .n_layer = 2, .n_head = 4, .n_embd = 16, .n_kv_head = 2, .n_inner = 24, .init = {}};
  std::vector<std::shared_ptr<Gpt>> models{make_gpt(gpt, kTokenKinds, kMaxTokens, 1), make_llama(llama, kTokenKinds, 1)};
  for (const auto& model : models) {
    for (const at::Tensor& parameter : model->parameters()) {
      if (parameter.dim() > 1) parameter.mul_(20);
    }
    model->to(type);
    model->eval();
  }
  return models;
}

// Returns the allowed difference. Results differ by rounding, because the kernels sum products in different orders.
double tolerance(at::ScalarType type) {
  return type == at::kDouble ? 1e-12 : 1e-5;
}

void expect_alike(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LT((a - b).abs().max().item<double>(), tolerance(type) * b.abs().max().item<double>());
}

TEST(KvCache, MatchesAFullPass) {
  const c10::NoGradGuard no_grad;
  const at::Tensor tokens = at::randint(kTokenKinds, {1, kMaxTokens}, at::kLong);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const auto& model : both_models(type)) {
      const at::Tensor whole = model->forward(tokens);
      KvCache seen(kMaxTokens);
      expect_alike(model->forward(tokens.narrow(1, 0, 5), {.seen = &seen}), whole.narrow(1, 0, 5), type);
      for (std::int64_t i = 5; i < kMaxTokens; ++i) {
        EXPECT_EQ(seen.count(), i);
        expect_alike(model->forward(tokens.narrow(1, i, 1), {.seen = &seen}), whole.narrow(1, i, 1), type);
      }
      KvCache few(4);
      EXPECT_THROW(model->forward(tokens.narrow(1, 0, 5), {.seen = &few}), InternalError) << "the cache is too small";
      seen.clear();
      expect_alike(model->forward(tokens.narrow(1, 0, 2), {.seen = &seen}), whole.narrow(1, 0, 2), type);
      EXPECT_THROW(model->forward(tokens.narrow(1, 2, 2), {.seen = &seen}), InternalError) << "one by one";
    }
  }
}

TEST(PackedTexts, StartAfterAnEndToken) {
  const at::Tensor tokens = at::tensor({5, 0, 3, 4, 0, 0, 7, 8}, at::kLong).view({1, 8});
  const TextContext context = packed_texts(tokens, 0);
  EXPECT_TRUE(context.positions.equal(at::tensor({0, 1, 0, 1, 2, 0, 0, 1}, at::kLong).view({1, 8})));
  const std::vector<std::int64_t> text{0, 0, 1, 1, 1, 2, 3, 3};
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t k = 0; k < 8; ++k) {
      const bool sees = k <= i && text[static_cast<std::size_t>(i)] == text[static_cast<std::size_t>(k)];
      EXPECT_EQ(context.mask[0][0][i][k].item<bool>(), sees) << i << " and " << k;
    }
  }
}

TEST(PackedTexts, MatchSeparateTexts) {
  const c10::NoGradGuard no_grad;
  const at::Tensor tokens = at::tensor({5, 1, 3, 4, 2, 1, 7, 8, 9, 10, 3, 2, 2, 5, 4, 6}, at::kLong).view({2, 8});
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const auto& model : both_models(type)) {
      const at::Tensor packed = model->forward(tokens, packed_texts(tokens, 1));
      for (const auto& [row, begin, count] : {std::tuple{0, 0, 2}, {0, 2, 4}, {0, 6, 2}, {1, 0, 8}}) {
        const at::Tensor alone = model->forward(tokens.narrow(0, row, 1).narrow(1, begin, count));
        expect_alike(packed.narrow(0, row, 1).narrow(1, begin, count), alone, type);
      }
      EXPECT_FALSE(at::allclose(packed, model->forward(tokens), 1e-3)) << "texts see each other in a plain pass";
    }
  }
}

}  // namespace
}  // namespace ddprun::trainer
