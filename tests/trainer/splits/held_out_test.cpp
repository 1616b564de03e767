// Tests the samples that are held out of training. The same seed must select the same samples. Each sample must be in exactly
// one of the two sets, and its content must not change.
#include "trainer/splits/held_out.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "common/base/error.hpp"
#include "trainer/data/images.hpp"

namespace ddprun::trainer {
namespace {

TrainConfig config_with(ValidationConfig validation, std::uint64_t seed = 3) {
  TrainConfig config;
  config.seed = seed;
  config.data.validation = validation;
  return config;
}

// Returns samples whose pixels and label are the number of the sample.
Sources numbered(std::int64_t samples) {
  const at::Tensor numbers = at::arange(samples, at::kLong);
  const Dataset set{numbers.to(at::kByte).view({samples, 1, 1, 1}).expand({samples, 1, 8, 8}).contiguous(), numbers};
  const AugmentConfig augment{.crop_padding = 2, .flip = true};
  return {.train = image_source(set, {}, augment), .test = image_source(set, {})};
}

std::vector<std::int64_t> labels_of(const Source& source) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(source.size()));
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::int64_t>(i);
  const Batch batch = source.make(samples, {});
  const auto* const first = batch.tensors[1].const_data_ptr<std::int64_t>();
  return {first, first + source.size()};
}

TEST(HeldOut, TheSeedAssignsEachSampleToOnePart) {
  const TrainConfig config = config_with({.fraction = 0.1});
  const SplitSamples split = split_samples(config, 101);
  EXPECT_EQ(split.validation.size(), 10U);
  std::set<std::int64_t> all(split.train.begin(), split.train.end());
  EXPECT_EQ(all.size(), 91U);
  all.insert(split.validation.begin(), split.validation.end());
  EXPECT_EQ(all.size(), 101U);
  EXPECT_EQ(*all.rbegin(), 100);
  EXPECT_TRUE(std::ranges::is_sorted(split.train));
  EXPECT_EQ(split_samples(config, 101).validation, split.validation);
  EXPECT_NE(split_samples(config_with({.fraction = 0.1}, 4), 101).validation, split.validation);
  EXPECT_EQ(split_samples(config_with({.samples = 7}), 101).validation.size(), 7U);
  EXPECT_EQ(split_samples(config_with({}), 101).train.size(), 101U);
}

TEST(HeldOut, BothPartsMakeSamplesLikeTheWhole) {
  const TrainConfig config = config_with({.samples = 5});
  const Sources whole = numbered(20), parts = hold_out(whole, config);
  const SplitSamples split = split_samples(config, 20);
  EXPECT_EQ(labels_of(*parts.train), split.train);
  EXPECT_EQ(labels_of(*parts.validation), split.validation);
  EXPECT_EQ(parts.test, whole.test);
  // The augmentation depends on the index of the sample in the whole data set, so it is the same for the held-out samples.
  const Draws draws{.seed = 9, .epoch = 2};
  const std::array<std::int64_t, 2> places{3, 11};
  const std::array<std::int64_t, 2> numbers{split.train[3], split.train[11]};
  EXPECT_TRUE(at::equal(parts.train->make(places, draws).tensors[0], whole.train->make(numbers, draws).tensors[0]));
  EXPECT_EQ(parts.train->fingerprint(), "15 of " + whole.train->fingerprint());
  EXPECT_EQ(hold_out(whole, config_with({})).validation, nullptr);
}

TEST(HeldOut, NeitherPartMayBeEmpty) {
  EXPECT_THROW(split_samples(config_with({.samples = 20}), 20), UsageError);
  EXPECT_THROW(split_samples(config_with({.fraction = 0.01}), 20), UsageError);
  EXPECT_THROW(split_samples(config_with({.fraction = 0.99}), 20), UsageError);
}

}  // namespace
}  // namespace ddprun::trainer
