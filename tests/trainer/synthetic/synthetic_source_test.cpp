// Tests generated samples. They must be the same for every caller, match the config, and have a pattern that a model can
// learn.
#include "trainer/synthetic/synthetic_source.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mean.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>
#include <vector>

namespace ddprun::trainer {
namespace {

TrainConfig config_of(ModelConfig::Type model, std::vector<std::int64_t> shape = {3, 8, 8}) {
  TrainConfig config;
  config.model.type = model;
  config.data.type = DataConfig::Type::kSynthetic;
  config.data.shape = std::move(shape);
  config.data.block_size = 50;
  config.data.vocab_size = 19;
  return config;
}

std::vector<std::int64_t> first_samples(std::int64_t count) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

void expect_as_described(const Source& source, const Description& described) {
  const Batch batch = source.make(std::array<std::int64_t, 2>{5, 7}, {});
  const Description own = source.describe();
  ASSERT_EQ(batch.tensors.size(), described.tensors.size());
  ASSERT_EQ(own.tensors.size(), described.tensors.size());
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    EXPECT_EQ(batch.tensors[i].sizes().slice(1).vec(), described.tensors[i].sizes);
    EXPECT_EQ(batch.tensors[i].scalar_type(), described.tensors[i].type);
    EXPECT_EQ(own.tensors[i].sizes, described.tensors[i].sizes);
    EXPECT_EQ(own.tensors[i].type, described.tensors[i].type);
  }
  EXPECT_EQ(batch.weight, source.weight(5) + source.weight(7));
}

TEST(Synthetic, SamplesAreReproducibleAndSplitsDiffer) {
  for (const auto model : {ModelConfig::Type::kCnn, ModelConfig::Type::kGpt}) {
    const Sources one = make_synthetic(config_of(model)), other = make_synthetic(config_of(model));
    const Batch together = one.train->make(std::array<std::int64_t, 3>{2, 9, 4}, Draws{.seed = 1, .epoch = 3});
    const Batch alone = other.train->make(std::array<std::int64_t, 1>{9}, {});
    for (std::size_t i = 0; i < together.tensors.size(); ++i) {
      EXPECT_TRUE(at::equal(together.tensors[i].narrow(0, 1, 1), alone.tensors[i]));
    }
    EXPECT_FALSE(at::equal(one.test->make(std::array<std::int64_t, 1>{9}, {}).tensors[0], alone.tensors[0]));
    EXPECT_EQ(one.train->fingerprint(), other.train->fingerprint());
  }
}

TEST(Synthetic, MatchTheirDescription) {
  for (const auto model : {ModelConfig::Type::kCnn, ModelConfig::Type::kGpt, ModelConfig::Type::kLlama}) {
    const TrainConfig config = config_of(model);
    const Sources sources = make_synthetic(config);
    expect_as_described(*sources.train, describe_synthetic(config));
    EXPECT_EQ(sources.train->size(), kSyntheticSamples);
    EXPECT_EQ(sources.test->size(), kSyntheticSamples);
  }
  TrainConfig numbers = config_of(ModelConfig::Type::kMlp, {5});
  numbers.data.predict = DataConfig::Predict::kNumber;
  numbers.data.train_samples = 30;
  numbers.data.test_samples = 20;
  const Sources sources = make_synthetic(numbers);
  expect_as_described(*sources.train, describe_synthetic(numbers));
  EXPECT_EQ(sources.train->size(), 30);
  EXPECT_EQ(sources.test->size(), 20);
  EXPECT_NE(sources.train->fingerprint(), make_synthetic(config_of(ModelConfig::Type::kMlp, {5})).train->fingerprint());
}

// The mean over many samples of a class removes the noise, so the texture of the class remains.
TEST(Synthetic, EachClassHasATexture) {
  const TrainConfig config = config_of(ModelConfig::Type::kCnn, {200});
  const Batch batch = make_synthetic(config).train->make(first_samples(4000), {});
  const at::Tensor means[2] = {at::mean(batch.tensors[0].index({batch.tensors[1] == 0}), 0),
                               at::mean(batch.tensors[0].index({batch.tensors[1] == 1}), 0)};
  for (const at::Tensor& mean : means) {
    EXPECT_NEAR(mean.square().mean().item<double>(), 1.0 / 4, 0.05);  // the texture has a standard deviation of 1/2
    EXPECT_NEAR((mean.narrow(0, 0, kTexture) * mean.narrow(0, kTexture, kTexture)).mean().item<double>(), 1.0 / 4, 0.05);
  }
  EXPECT_NEAR((means[0] * means[1]).mean().item<double>(), 0, 0.1);
  EXPECT_NEAR(batch.tensors[0].mean().item<double>(), 0, 0.1);
  EXPECT_NEAR(batch.tensors[0].var().item<double>(), 5.0 / 4, 0.1);
}

TEST(Synthetic, ANumberIsTheStrengthOfATexture) {
  TrainConfig config = config_of(ModelConfig::Type::kMlp, {2, 500});
  config.data.predict = DataConfig::Predict::kNumber;
  const Batch batch = make_synthetic(config).train->make(first_samples(2000), {});
  const at::Tensor inputs = batch.tensors[0].flatten(1), targets = batch.tensors[1].squeeze(1);
  EXPECT_NEAR(targets.mean().item<double>(), 0, 0.1);
  EXPECT_NEAR(targets.var().item<double>(), 1, 0.1);
  const at::Tensor texture = at::mean(inputs * targets.unsqueeze(1), 0);  // averaging removes the noise
  EXPECT_NEAR(texture.square().mean().item<double>(), 1.0 / 4, 0.05);
  const at::Tensor found = inputs.matmul(texture) / texture.dot(texture);
  EXPECT_LT((found - targets).square().mean().item<double>(), 0.05);
}

// The noise of a sample is the sum of two noise tensors. Each of these tensors is used in many samples, but no two samples may
// have the same two tensors.
TEST(Synthetic, SamplesAreDistinct) {
  TrainConfig config = config_of(ModelConfig::Type::kMlp, {3});
  config.data.predict = DataConfig::Predict::kNumber;
  config.data.train_samples = config.data.test_samples = 100'000;
  const Sources sources = make_synthetic(config);
  std::set<std::array<float, 3>> seen;
  for (const auto& source : {sources.train, sources.test}) {
    const Batch batch = source->make(first_samples(100'000), {});
    const auto* numbers = batch.tensors[0].const_data_ptr<float>();
    for (int i = 0; i < 100'000; ++i, numbers += 3) seen.insert({numbers[0], numbers[1], numbers[2]});
  }
  EXPECT_EQ(seen.size(), 200'000u);
}

TEST(Synthetic, ThreeOfFourTokensFollowFromThePrevious) {
  const Batch batch = make_synthetic(config_of(ModelConfig::Type::kGpt)).train->make(first_samples(200), {});
  const at::Tensor inputs = batch.tensors[0], targets = batch.tensors[1];
  EXPECT_TRUE(at::equal(inputs.narrow(1, 1, 49), targets.narrow(1, 0, 49)));
  EXPECT_GE(targets.min().item<std::int64_t>(), 0);
  EXPECT_EQ(targets.max().item<std::int64_t>(), 18);
  const double follow = ((inputs * 7 + 3).remainder(19) == targets).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(follow, 0.75 + 0.25 / 19, 0.02);
}

TEST(Synthetic, ASampleLargerThanTheNoiseTableIsNoise) {
  const Batch batch =
      make_synthetic(config_of(ModelConfig::Type::kCnn, {1 << 11, 1 << 10})).train->make(std::array<std::int64_t, 1>{0}, {});
  EXPECT_NEAR(batch.tensors[0].var().item<double>(), 5.0 / 4, 0.2);
}

}  // namespace
}  // namespace ddprun::trainer
