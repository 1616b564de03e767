// Pictures that a device normalises have the bits of those that the loader normalises.
#include "trainer/data/upload.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

constexpr Normalization kScale{0.286, 0.353};

Dataset pictures(std::int64_t n, std::int64_t side) {
  return {(at::arange(n * side * side, at::kLong) * 37).remainder(256).to(at::kByte).reshape({n, 1, side, side}),
          at::arange(n, at::kLong).remainder(10)};
}

// A share made in next(), and one that comes from the loader's thread.
class UploadTest : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(InlineAndThread, UploadTest, testing::Values(4, 256));

TEST_P(UploadTest, NormalisesBytesToTheLoadersBits) {
  const Dataset data = pictures(23, GetParam());
  for (const AugmentConfig augment : {AugmentConfig{}, AugmentConfig{.crop_padding = 2, .flip = true}}) {
    LoaderOptions options{.batch_size = 10, .micro_batch_size = 3, .seed = 5, .augment = augment};
    Loader floats(data, kScale, options, 0, 6);
    options.pictures = Pictures::kPinnedBytes;
    Loader bytes(data, kScale, options, 0, 6);
    Upload upload(kScale, c10::kCPU);
    for (int step = 0; step < 6; ++step) {
      const Share normalised = floats.next();
      const Share raw = bytes.next();
      ASSERT_EQ(raw.micro_batches.size(), normalised.micro_batches.size());
      for (std::size_t i = 0; i < raw.micro_batches.size(); ++i) {
        EXPECT_EQ(raw.micro_batches[i].images.scalar_type(), at::kByte) << "a quarter of the bytes";
        const MicroBatch there = upload.take(raw.micro_batches[i]);
        EXPECT_TRUE(there.images.equal(normalised.micro_batches[i].images)) << "step " << step;
        EXPECT_TRUE(there.labels.equal(normalised.micro_batches[i].labels));
      }
    }
  }
}

TEST(Upload, OfAnEmptyShareIsItsStandIn) {
  const Dataset data = pictures(4, 4);
  const LoaderOptions options{.batch_size = 1, .world = 2, .rank = 1, .pictures = Pictures::kPinnedBytes};
  Loader loader(data, kScale, options, 0, 1);
  Upload upload(kScale, c10::kCPU);
  EXPECT_TRUE(upload.take(loader.next().micro_batches.at(0)).images.equal(evaluation_batch(data, kScale, 0, 1).images));
}

TEST(Upload, OfTestSamplesHasTheSameBits) {
  const Dataset data = pictures(20, 5);
  Upload upload(kScale, c10::kCPU);
  const MicroBatch raw = evaluation_batch(data, kScale, 5, 12, Pictures::kPinnedBytes);
  EXPECT_EQ(raw.images.scalar_type(), at::kByte);
  EXPECT_TRUE(upload.take(raw).images.equal(evaluation_batch(data, kScale, 5, 12).images));
}

TEST(Upload, LeavesACpusPicturesWhereTheyAre) {
  EXPECT_EQ(pictures_for(c10::kCPU), Pictures::kNormalised);
  EXPECT_EQ(pictures_for(c10::Device(c10::kCUDA, 0)), Pictures::kPinnedBytes);
  Upload upload(kScale, c10::kCPU);
  const MicroBatch batch = evaluation_batch(pictures(3, 4), kScale, 0, 3);
  EXPECT_EQ(upload.take(batch).images.const_data_ptr(), batch.images.const_data_ptr());
}

}  // namespace
}  // namespace ddprun::trainer
