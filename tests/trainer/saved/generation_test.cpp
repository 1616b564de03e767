// Tests how a token is chosen, and which tokens a model sees if the text is longer than its context.
#include "trainer/saved/generation.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

at::Tensor logits_of(const std::vector<float>& values) {
  return at::tensor(values).unsqueeze(0);
}

std::vector<std::int64_t> chosen(const at::Tensor& logits, const Sampling& sampling, int count) {
  at::Generator generator = at::detail::createCPUGenerator(sampling.seed);
  std::vector<std::int64_t> tokens;
  while (count-- > 0) tokens.push_back(choose_token(logits, sampling, generator));
  return tokens;
}

TEST(ChooseToken, AtTemperature0TakesTheFirstLikeliest) {
  EXPECT_EQ(chosen(logits_of({1, 3, 2, 3}), {.temperature = 0}, 2), (std::vector<std::int64_t>{1, 1}));
}

TEST(ChooseToken, IsReproducibleAndDrawsFromAllTokens) {
  const at::Tensor logits = logits_of({0, 1, 2, 1});
  const auto once = chosen(logits, {.seed = 5}, 200);
  EXPECT_EQ(chosen(logits, {.seed = 5}, 200), once);
  EXPECT_NE(chosen(logits, {.seed = 6}, 200), once);
  EXPECT_EQ(std::set(once.begin(), once.end()), (std::set<std::int64_t>{0, 1, 2, 3}));
}

TEST(ChooseToken, TopKIncludesTies) {
  const auto among = [](std::int64_t k) {
    const auto tokens = chosen(logits_of({0, 1, 2, 1}), {.top_k = k}, 200);
    return std::set(tokens.begin(), tokens.end());
  };
  EXPECT_EQ(among(1), std::set<std::int64_t>{2});
  EXPECT_EQ(among(2), (std::set<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(among(100), (std::set<std::int64_t>{0, 1, 2, 3}));
}

// A division of the logits by a tiny temperature overflows. The token with the highest probability must still be chosen.
TEST(ChooseToken, ATinyTemperatureTakesTheLikeliest) {
  for (const double temperature : {1e-38, 1e-40, 5e-324}) {
    EXPECT_EQ(chosen(logits_of({1, 30, 2, -90}), {.temperature = temperature, .top_k = 2}, 2),
              (std::vector<std::int64_t>{1, 1}))
        << temperature;
    EXPECT_EQ(chosen(logits_of({0, 0, -1}), {.temperature = temperature}, 1).front() < 2, true) << temperature;
  }
}

// A lower temperature increases the probability of the token that already has the highest probability. With logits 0 and 1,
// token 1 is e^(1/T) times as likely as token 0.
TEST(ChooseToken, FollowsTheTemperature) {
  for (const double temperature : {0.5, 1.0, 4.0}) {
    const auto tokens = chosen(logits_of({0, 1}), {.temperature = temperature, .seed = 1}, 4000);
    const auto ones = static_cast<double>(std::ranges::count(tokens, 1));
    const double expected = 1 / (1 + std::exp(-1 / temperature));
    EXPECT_NEAR(ones / 4000, expected, 0.03) << temperature;  // the tolerance is at least 3.8 standard deviations
  }
}

// A model that records the tokens of its last pass. Its logits prefer the last token of the input.
class RecordingGpt : public Gpt {
 public:
  at::Tensor hidden(const at::Tensor& tokens, const TextContext& context) override {
    seen = tokens.flatten();
    context.seen->add(seen.numel());
    return at::one_hot(tokens, 16).to(at::kFloat);
  }
  at::Tensor logits(const at::Tensor& hidden) override { return hidden * scale; }
  at::Tensor seen;
  double scale = 1;
};

TEST(Generation, UsesTheEndOfALongText) {
  RecordingGpt model;
  Generation generation(model, /*positions=*/3, c10::kCPU, TrainConfig::Precision::kFp32, {.temperature = 0});
  EXPECT_EQ(generation.next({7}), 7);
  EXPECT_EQ(model.seen.numel(), 1);
  EXPECT_EQ(generation.next({1, 2, 3, 4, 5}), 5);
  EXPECT_TRUE(model.seen.equal(at::tensor({3, 4, 5}, at::kLong)));
}

TEST(Generation, OnlyTheNewTokenIsComputedWhileAllFit) {
  RecordingGpt model;
  Generation generation(model, /*positions=*/4, c10::kCPU, TrainConfig::Precision::kFp32, {.temperature = 0});
  const auto seen_by_model = [&](const std::vector<std::int64_t>& tokens) {
    EXPECT_EQ(generation.next(tokens), tokens.back());
    return std::vector<std::int64_t>(model.seen.const_data_ptr<std::int64_t>(),
                                     model.seen.const_data_ptr<std::int64_t>() + model.seen.numel());
  };
  using Tokens = std::vector<std::int64_t>;
  EXPECT_EQ(seen_by_model({1, 2}), (Tokens{1, 2}));
  EXPECT_EQ(seen_by_model({1, 2, 3}), (Tokens{3}));
  EXPECT_EQ(seen_by_model({1, 2, 3, 4}), (Tokens{4}));
  EXPECT_EQ(seen_by_model({1, 2, 3, 4, 5}), (Tokens{2, 3, 4, 5})) << "all have moved";
  EXPECT_EQ(seen_by_model({1, 2, 3, 4, 5, 6}), (Tokens{3, 4, 5, 6}));
  EXPECT_EQ(seen_by_model({7, 8}), (Tokens{7, 8})) << "another text";
  EXPECT_EQ(seen_by_model({7, 9, 3}), (Tokens{7, 9, 3})) << "which does not start with the cached tokens";
  EXPECT_EQ(seen_by_model({7, 9, 3, 4, 5, 6}), (Tokens{3, 4, 5, 6})) << "more than one more";
}

TEST(Generation, ATextAttendsToNoEarlierDocument) {
  RecordingGpt model;
  Generation generation(model, /*positions=*/4, c10::kCPU, TrainConfig::Precision::kFp32, {.temperature = 0}, /*end=*/9);
  generation.next({1, 9, 2, 3});
  EXPECT_TRUE(model.seen.equal(at::tensor({2, 3}, at::kLong)));
  generation.next({1, 9, 2, 9});
  EXPECT_TRUE(model.seen.equal(at::tensor({2, 9}, at::kLong)));
  generation.next({9});
  EXPECT_TRUE(model.seen.equal(at::tensor({9}, at::kLong)));
}

TEST(Generation, NaNWeightsGenerateNothing) {
  RecordingGpt model;
  model.scale = std::numeric_limits<double>::quiet_NaN();
  Generation generation(model, 3, c10::kCPU, TrainConfig::Precision::kFp32, {});
  EXPECT_THROW(generation.next({7}), DivergedError);
}

}  // namespace
}  // namespace ddprun::trainer
