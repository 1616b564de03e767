// Tests the batches of the loader. Pixels have the same values as with torchvision, and a batch has the samples that the
// sampler chooses. The augmentation does not depend on the thread that makes the batch.
#include "trainer/data/loader.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "tests/trainer/data/golden.hpp"
#include "trainer/data/images.hpp"
#include "trainer/data/pixels.hpp"
#include "trainer/data/sampler.hpp"

namespace ddprun::trainer {
namespace {

// Returns n images. Pixel i of sample s is (13 s + i) mod 251, and the label is s mod 10.
Dataset counted_data(std::int64_t n, std::int64_t side = 4) {
  const at::Tensor samples = at::arange(n, at::kLong);
  const at::Tensor pixels = at::arange(side * side, at::kLong);
  return {(samples.unsqueeze(1) * 13 + pixels).remainder(251).to(at::kByte).reshape({n, 1, side, side}), samples.remainder(10)};
}

constexpr Normalization kNormalization{0.25, 0.5};

std::vector<std::uint8_t> pixels_of(const Dataset& data, std::int64_t sample) {
  const std::int64_t size = data.images[0].numel();
  const auto* first = data.images.const_data_ptr<std::uint8_t>() + sample * size;
  return {first, first + size};
}

std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.const_data_ptr<float>(), whole.const_data_ptr<float>() + whole.numel()};
}

std::vector<float> normalised(const std::vector<std::uint8_t>& pixels) {
  const PixelTable table = make_pixel_table(kNormalization);
  std::vector<float> values;
  for (const std::uint8_t pixel : pixels) {
    values.push_back(table[pixel]);
  }
  return values;
}

TEST(PixelTable, MatchesTorchvisionBitwise) {
  for (const auto& entry : golden()["normalised"]) {
    const PixelTable table = make_pixel_table({entry["mean"], entry["std"]});
    for (std::size_t i = 0; i < table.size(); ++i) {
      const float expected = std::strtof(entry["values"][i].get<std::string>().c_str(), nullptr);
      EXPECT_EQ(table[i], expected) << "pixel " << i << " mean " << entry["mean"];
    }
  }
}

TEST(NormalizationOf, UsesTheValuesOfTheConfig) {
  DataConfig config;
  config.mean = 0.1;
  config.std = 0.2;
  EXPECT_EQ(normalization_of(config, counted_data(1)).mean, 0.1);
  EXPECT_EQ(normalization_of(config, counted_data(1)).std, 0.2);
}

TEST(NormalizationOf, IsTheMeanAndDeviationOfAllPixels) {
  // The values 0 to 250 occur equally often, so the mean is 125 and the variance is (251^2 - 1) / 12.
  Dataset data{at::arange(251 * 400, at::kLong).remainder(251).to(at::kByte).reshape({400, 1, 251, 1}),
               at::arange(400, at::kLong)};
  const Normalization normalization = normalization_of({}, data);
  EXPECT_DOUBLE_EQ(normalization.mean, 125.0 / 255.0);
  EXPECT_DOUBLE_EQ(normalization.std, std::sqrt((251.0 * 251.0 - 1) / 12.0) / 255.0);
}

TEST(NormalizationOf, RefusesPixelsThatAreAllEqual) {
  Dataset data = counted_data(3);
  data.images.fill_(7);
  EXPECT_THROW(normalization_of({}, data), UsageError);
}

TEST(Augmentation, DependsOnlyOnSeedEpochAndSample) {
  const AugmentConfig config{.crop_padding = 4, .flip = true};
  std::set<std::tuple<std::int64_t, std::int64_t, bool>> seen;
  for (std::int64_t sample = 0; sample < 2000; ++sample) {
    const Augmentation first = draw_augmentation(config, 1, 2, sample);
    const Augmentation again = draw_augmentation(config, 1, 2, sample);
    EXPECT_EQ(std::tie(first.top, first.left, first.mirror), std::tie(again.top, again.left, again.mirror));
    seen.insert({first.top, first.left, first.mirror});
    ASSERT_TRUE(0 <= first.top && first.top <= 8 && 0 <= first.left && first.left <= 8);
  }
  EXPECT_EQ(seen.size(), 9U * 9U * 2U);  // each combination of vertical offset, horizontal offset and mirroring occurs
}

TEST(Augmentation, DiffersBetweenEpochsAndSeeds) {
  const AugmentConfig config{.crop_padding = 4, .flip = true};
  const auto draws = [&](std::uint64_t seed, std::int64_t epoch) {
    std::vector<std::tuple<std::int64_t, std::int64_t, bool>> all;
    for (std::int64_t sample = 0; sample < 50; ++sample) {
      const Augmentation one = draw_augmentation(config, seed, epoch, sample);
      all.emplace_back(one.top, one.left, one.mirror);
    }
    return all;
  };
  EXPECT_NE(draws(0, 0), draws(0, 1));
  EXPECT_NE(draws(0, 0), draws(1, 0));
  EXPECT_NE(draws(0, 1), draws(1, 0));
}

// Compares with the definition, pixel by pixel: out(y, x) = padded(y + top, x' + left), where x' is x or its mirrored position.
TEST(Augmentation, CropsFromABlackBorderAndMirrors) {
  constexpr std::int64_t kPadding = 2;
  const PlaneShape shape{2, 3, 4};
  const PixelTable table = make_pixel_table(kNormalization);
  std::vector<std::uint8_t> pixels(24);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(100 + i);
  }
  for (std::int64_t top = 0; top <= 2 * kPadding; ++top) {
    for (std::int64_t left = 0; left <= 2 * kPadding; ++left) {
      for (const bool mirror : {false, true}) {
        std::vector<float> out(24);
        normalize_augmented(pixels.data(), shape, table, kPadding, {top, left, mirror}, out.data());
        for (std::int64_t i = 0; i < 24; ++i) {
          const std::int64_t channel = i / 12;
          const std::int64_t y = i / 4 % 3 + top - kPadding;
          const std::int64_t x = (mirror ? 3 - i % 4 : i % 4) + left - kPadding;
          const bool inside = 0 <= y && y < 3 && 0 <= x && x < 4;
          const std::size_t pixel = inside ? pixels[static_cast<std::size_t>(channel * 12 + y * 4 + x)] : 0;
          ASSERT_EQ(out[static_cast<std::size_t>(i)], table[pixel]) << top << " " << left << " " << mirror << " " << i;
        }
      }
    }
  }
}

// The test parameter is the side length of an image in pixels. The loader prepares small images in next(), and large images on
// its thread.
class LoaderTest : public testing::TestWithParam<std::int64_t> {
 protected:
  std::int64_t side() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(InlineAndThread, LoaderTest, testing::Values(4, 256));

TEST_P(LoaderTest, ReturnsTheSamplersBatchesInOrder) {
  const Dataset data = counted_data(23, side());
  const auto source = image_source(data, kNormalization);
  for (int rank = 0; rank < 3; ++rank) {
    Loader loader(*source, {.batch_size = 10, .seed = 5, .world = 3, .rank = rank}, 0, 6);
    for (std::int64_t step = 0; step < 6; ++step) {
      const RankBatch share = loader.next();
      const std::int64_t position = step % 3 * 10;
      EXPECT_EQ(share.step, step);
      EXPECT_EQ(share.epoch, step / 3);
      EXPECT_EQ(share.position, position);
      EXPECT_EQ(share.global_size, std::min<std::int64_t>(10, 23 - position));
      EXPECT_EQ(share.samples, share_of_batch(epoch_order(23, 5, step / 3), position, share.global_size, 3, rank));
      EXPECT_EQ(share.own_size, static_cast<std::int64_t>(share.samples.size()));
      ASSERT_EQ(share.micro_batches.size(), 1U);
      for (std::int64_t i = 0; i < share.own_size; ++i) {
        const std::int64_t sample = share.samples[static_cast<std::size_t>(i)];
        EXPECT_EQ(share.micro_batches[0].tensors[1][i].item<std::int64_t>(), sample % 10);
        EXPECT_EQ(floats_of(share.micro_batches[0].tensors[0][i]), normalised(pixels_of(data, sample)));
      }
    }
    EXPECT_THROW(loader.next(), std::logic_error);
  }
}

TEST_P(LoaderTest, StartsAtAnyStep) {
  const auto source = image_source(counted_data(23, side()), kNormalization, {.crop_padding = 1, .flip = true});
  const LoaderOptions options{.batch_size = 10, .seed = 5};
  Loader whole(*source, options, 0, 9);
  for (int skipped = 0; skipped < 4; ++skipped) {
    whole.next();
  }
  Loader resumed(*source, options, 4, 9);
  for (std::int64_t step = 4; step < 9; ++step) {
    const RankBatch expected = whole.next();
    const RankBatch share = resumed.next();
    EXPECT_EQ(share.samples, expected.samples);
    EXPECT_TRUE(share.micro_batches[0].tensors[0].equal(expected.micro_batches[0].tensors[0]));
  }
}

TEST_P(LoaderTest, SplitsARankBatchIntoMicroBatches) {
  const auto source = image_source(counted_data(20, side()), kNormalization);
  Loader whole(*source, {.batch_size = 8}, 0, 1);
  Loader cut(*source, {.batch_size = 8, .micro_batch_size = 3}, 0, 1);
  const Batch expected = whole.next().micro_batches.at(0);
  const RankBatch share = cut.next();
  ASSERT_EQ(share.micro_batches.size(), 3U);
  EXPECT_TRUE(share.micro_batches[0].tensors[0].equal(expected.tensors[0].narrow(0, 0, 3)));
  EXPECT_TRUE(share.micro_batches[1].tensors[0].equal(expected.tensors[0].narrow(0, 3, 3)));
  EXPECT_TRUE(share.micro_batches[2].tensors[0].equal(expected.tensors[0].narrow(0, 6, 2)));
  EXPECT_TRUE(share.micro_batches[2].tensors[1].equal(expected.tensors[1].narrow(0, 6, 2)));
}

TEST_P(LoaderTest, AnEmptyRankBatchGetsAStandIn) {
  const Dataset data = counted_data(9, side());
  const auto source = image_source(data, kNormalization);
  Loader loader(*source, {.batch_size = 8, .world = 2, .rank = 1}, 1, 2);
  const RankBatch share = loader.next();
  EXPECT_EQ(share.global_size, 1);
  EXPECT_EQ(share.own_size, 0);
  EXPECT_TRUE(share.samples.empty());
  ASSERT_EQ(share.micro_batches.size(), 1U);
  EXPECT_TRUE(share.micro_batches[0].stand_in);
  EXPECT_EQ(share.micro_batches[0].samples(), 0);
  EXPECT_EQ(share.micro_batches[0].weight, 1) << "a mean by it is a number";
  Loader first(*source, {.batch_size = 8, .world = 2, .rank = 0}, 1, 2);
  const std::int64_t only = first.next().samples.at(0);
  EXPECT_EQ(floats_of(share.micro_batches[0].tensors[0]), normalised(pixels_of(data, only)));
}

// 20 samples on three ranks. With batches of 9, the ranks get 3, 3 and 3 samples, and 1, 1 and 0 in the last step. With
// batches of 13 they get 5, 4 and 4.
TEST_P(LoaderTest, EqualPassesGivesAllRanksTheSameCount) {
  const auto source = image_source(counted_data(20, side()), kNormalization);
  for (const auto& [batch_size, micro_batch_size, expected] :
       {std::tuple(9, 0, std::vector<std::size_t>{1, 1, 1}), std::tuple(9, 2, std::vector<std::size_t>{2, 2, 1}),
        std::tuple(13, 4, std::vector<std::size_t>{2, 1})}) {
    for (int rank = 0; rank < 3; ++rank) {
      LoaderOptions options{.batch_size = batch_size, .micro_batch_size = micro_batch_size, .world = 3, .rank = rank};
      options.equal_passes = true;
      Loader equal(*source, options, 0, static_cast<std::int64_t>(expected.size()));
      for (const std::size_t passes : expected) {
        const RankBatch share = equal.next();
        const std::int64_t real = options.micro_batch_size > 0 ? (share.own_size + micro_batch_size - 1) / micro_batch_size
                                                               : (share.own_size > 0 ? 1 : 0);
        ASSERT_EQ(share.micro_batches.size(), passes) << "rank " << rank << " of step " << share.step;
        for (std::size_t i = 0; i < passes; ++i) {
          EXPECT_EQ(share.micro_batches[i].stand_in, i >= static_cast<std::size_t>(real)) << i;
        }
      }
    }
  }
}

TEST_P(LoaderTest, AugmentationDoesNotDependOnTheWorld) {
  const auto source = image_source(counted_data(16, side()), kNormalization, {.crop_padding = 1, .flip = true});
  const auto plain = image_source(counted_data(16, side()), kNormalization);
  LoaderOptions options{.batch_size = 16, .seed = 3};
  Loader alone(*source, options, 0, 1);
  const RankBatch whole = alone.next();
  options.world = 4;
  options.rank = 2;
  Loader one_of_four(*source, options, 0, 1);
  const RankBatch share = one_of_four.next();
  for (std::int64_t i = 0; i < share.own_size; ++i) {
    EXPECT_TRUE(share.micro_batches[0].tensors[0][i].equal(whole.micro_batches[0].tensors[0][2 + 4 * i]));
  }
  EXPECT_FALSE(whole.micro_batches[0].tensors[0].equal(
      Loader(*plain, {.batch_size = 16, .seed = 3}, 0, 1).next().micro_batches[0].tensors[0]));
}

// The partner and the weight of each sample in a global batch do not depend on the rank or the micro-batch that processes the
// sample.
TEST_P(LoaderTest, MixupDoesNotDependOnTheWorld) {
  const Dataset data = counted_data(23, side());
  const auto source = image_source(data, kNormalization, {.crop_padding = 1, .flip = true});
  const auto mixed_by = [&](int world, std::int64_t micro) {
    // the key is the position in the epoch; the value is the batch, and the index in the batch
    std::map<std::int64_t, std::pair<Batch, std::int64_t>> found;
    for (int rank = 0; rank < world; ++rank) {
      Loader loader(*source,
                    {.batch_size = 10, .micro_batch_size = micro, .seed = 3, .mixup = 0.4, .world = world, .rank = rank}, 3, 6);
      for (int step = 0; step < 3; ++step) {
        const RankBatch share = loader.next();
        std::int64_t place = rank;
        for (const Batch& batch : share.micro_batches) {
          if (batch.stand_in) {
            EXPECT_TRUE(batch.partners.empty());
            continue;
          }
          for (std::int64_t i = 0; i < batch.tensors[0].size(0); ++i, place += world)
            found[share.position + place] = {batch, i};
        }
      }
    }
    return found;
  };
  const auto alone = mixed_by(1, 0);
  ASSERT_EQ(alone.size(), 23U);
  const std::vector<std::int64_t> order = epoch_order(23, 3, 1);
  for (const auto& [position, at] : alone) {
    const auto& [batch, i] = at;
    const std::int64_t first = position / 10 * 10, size = std::min<std::int64_t>(10, 23 - first);
    const std::int64_t before = first + (position - first + size - 1) % size;
    EXPECT_EQ(batch.partners[1][i].item<std::int64_t>(), order[static_cast<std::size_t>(before)] % 10);
    const auto& [its, place] = alone.at(before);
    EXPECT_TRUE(batch.partners[0][i].equal(its.tensors[0][place])) << "as it is in its own place";
    EXPECT_EQ(batch.own_part[i].item<float>(), own_part(0.4, 3, 1, position));
  }
  for (const auto& [world, micro] : {std::pair<int, std::int64_t>{2, 0}, {3, 0}, {3, 2}, {12, 0}}) {
    const auto shared = mixed_by(world, micro);
    ASSERT_EQ(shared.size(), alone.size());
    for (const auto& [position, at] : alone) {
      const auto& [batch, i] = at;
      const auto& [its, k] = shared.at(position);
      EXPECT_TRUE(its.partners[0][k].equal(batch.partners[0][i])) << position << " of " << world;
      EXPECT_TRUE(its.partners[1][k].equal(batch.partners[1][i]));
      EXPECT_TRUE(its.own_part[k].equal(batch.own_part[i]));
    }
  }
}

TEST_P(LoaderTest, EndsEarlyWithoutWaiting) {
  const auto source = image_source(counted_data(20, side()), kNormalization);
  for (int taken = 0; taken < 4; ++taken) {
    Loader loader(*source, {.batch_size = 8, .prefetch = 2}, 0, 1'000'000'000);
    for (int i = 0; i < taken; ++i) {
      loader.next();
    }
  }
}

TEST_P(LoaderTest, AQueueOfOneDeliversManyBatches) {
  const auto source = image_source(counted_data(20, side()), kNormalization);
  Loader loader(*source, {.batch_size = 8, .prefetch = 1}, 0, 300);
  for (std::int64_t step = 0; step < 300; ++step) {
    ASSERT_EQ(loader.next().step, step);
  }
}

// Batches are the same for any number of threads. The configuration includes ends of epochs, micro-batches, random draws, and
// ranks with few samples.
TEST_P(LoaderTest, ThreadsKeepBatchesAndOrder) {
  const auto source = image_source(counted_data(23, side()), kNormalization, {.crop_padding = 1, .flip = true});
  LoaderOptions options{.batch_size = 10, .micro_batch_size = 2, .prefetch = 2, .seed = 5, .mixup = 0.4, .world = 2, .rank = 1};
  Loader alone(*source, options, 1, 60);
  options.threads = 4;
  Loader several(*source, options, 1, 60);
  for (std::int64_t step = 1; step < 60; ++step) {
    const RankBatch expected = alone.next(), share = several.next();
    ASSERT_EQ(share.step, step);
    ASSERT_EQ(share.samples, expected.samples) << step;
    ASSERT_EQ(share.micro_batches.size(), expected.micro_batches.size());
    for (std::size_t i = 0; i < share.micro_batches.size(); ++i) {
      const Batch &one = share.micro_batches[i], &other = expected.micro_batches[i];
      ASSERT_EQ(one.stand_in, other.stand_in);
      ASSERT_TRUE(one.tensors[0].equal(other.tensors[0]) && one.tensors[1].equal(other.tensors[1])) << step;
      ASSERT_TRUE(one.stand_in || (one.partners[0].equal(other.partners[0]) && one.own_part.equal(other.own_part))) << step;
    }
  }
  EXPECT_THROW(several.next(), std::logic_error);
}

// A source in which one sample is damaged. In the test, each step has one sample.
struct Damaged : Source {
  explicit Damaged(std::int64_t sample) : sample_(sample) {}
  std::int64_t size() const override { return 40; }
  Description describe() const override { return {.tensors = {{.sizes = {1}, .type = at::kLong}}}; }
  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    if (samples.front() == sample_) throw UsageError("sample " + std::to_string(sample_) + " is damaged");
    return {.tensors = {at::full({1, 1}, samples.front(), at::kLong)}, .weight = 1};
  }
  std::string fingerprint() const override { return "damaged"; }
  std::int64_t sample_;
};

TEST(Loader, AnExceptionArrivesInItsStep) {
  const std::vector<std::int64_t> order = epoch_order(40, 0, 0);
  for (const std::int64_t threads : {1, 2, 5}) {
    const Damaged source(order[17]);
    Loader loader(source, {.batch_size = 1, .threads = threads}, 0, 40);
    for (std::size_t step = 0; step < 17; ++step) EXPECT_EQ(loader.next().samples.front(), order[step]);
    try {
      loader.next();
      FAIL() << threads;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(), "sample " + std::to_string(order[17]) + " is damaged");
    }
  }
}

TEST(ImageSource, WithoutDrawsImagesAreNormalisedInOrder) {
  const Dataset data = counted_data(20);
  const std::vector<std::int64_t> samples{5, 6, 7, 8, 9, 10, 11};
  const Batch batch = image_source(data, kNormalization)->make(samples, {});
  ASSERT_EQ(batch.tensors[0].sizes(), (std::vector<std::int64_t>{7, 1, 4, 4}));
  EXPECT_TRUE(batch.tensors[1].equal(data.labels.narrow(0, 5, 7)));
  for (std::int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(floats_of(batch.tensors[0][i]), normalised(pixels_of(data, 5 + i)));
  }
}

}  // namespace
}  // namespace ddprun::trainer
