// Tests that images normalized on the device are bit-identical to images normalized by the loader.
#include "trainer/data/upload.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/data/images.hpp"
#include "trainer/data/loader.hpp"

namespace ddprun::trainer {
namespace {

constexpr Normalization kScale{0.286, 0.353};
constexpr std::array<std::int64_t, 1> kFirst{0};

Dataset made_images(std::int64_t n, std::int64_t side) {
  return {(at::arange(n * side * side, at::kLong) * 37).remainder(256).to(at::kByte).reshape({n, 1, side, side}),
          at::arange(n, at::kLong).remainder(10)};
}

// The test parameter is the side length of an image in pixels. The loader prepares small images in next(), and large images on
// its thread.
class UploadTest : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(InlineAndThread, UploadTest, testing::Values(4, 256));

TEST_P(UploadTest, NormalisesBytesBitwiseLikeTheLoader) {
  const Dataset data = made_images(23, GetParam());
  for (const AugmentConfig augment : {AugmentConfig{}, AugmentConfig{.crop_padding = 2, .flip = true}}) {
    const LoaderOptions options{.batch_size = 10, .micro_batch_size = 3, .seed = 5, .mixup = 1};
    const auto of_floats = image_source(data, kScale, augment);
    const auto of_bytes = image_source(data, kScale, augment, ImageForm::kPinnedBytes);
    Loader floats(*of_floats, options, 0, 6);
    Loader bytes(*of_bytes, options, 0, 6);
    Upload upload(*of_bytes, c10::kCPU);
    for (int step = 0; step < 6; ++step) {
      const RankBatch normalised = floats.next();
      const RankBatch raw = bytes.next();
      ASSERT_EQ(raw.micro_batches.size(), normalised.micro_batches.size());
      for (std::size_t i = 0; i < raw.micro_batches.size(); ++i) {
        EXPECT_EQ(raw.micro_batches[i].tensors[0].scalar_type(), at::kByte) << "a quarter of the bytes";
        const Batch there = upload.take(raw.micro_batches[i]);
        EXPECT_TRUE(there.tensors[0].equal(normalised.micro_batches[i].tensors[0])) << "step " << step;
        EXPECT_TRUE(there.tensors[1].equal(normalised.micro_batches[i].tensors[1]));
        EXPECT_TRUE(there.partners.at(0).equal(normalised.micro_batches[i].partners.at(0))) << "what it is mixed with";
        EXPECT_TRUE(there.own_part.equal(normalised.micro_batches[i].own_part));
      }
    }
  }
}

TEST(Upload, UploadsTheStandInOfAnEmptyBatch) {
  const auto source = image_source(made_images(4, 4), kScale, {}, ImageForm::kPinnedBytes);
  Loader loader(*source, {.batch_size = 1, .world = 2, .rank = 1}, 0, 1);
  Upload upload(*source, c10::kCPU);
  const Batch there = upload.take(loader.next().micro_batches.at(0));
  EXPECT_TRUE(there.tensors[0].equal(image_source(made_images(4, 4), kScale)->make(kFirst, {}).tensors[0]));
  EXPECT_TRUE(there.stand_in);
  EXPECT_EQ(there.samples(), 0);
}

TEST(Upload, UploadsTestSamplesBitwise) {
  const auto source = image_source(made_images(20, 5), kScale, {}, ImageForm::kPinnedBytes);
  Upload upload(*source, c10::kCPU);
  for (const std::vector<std::int64_t>& samples : {std::vector<std::int64_t>{5, 6, 7, 8}, {9, 3, 3}}) {
    const Batch raw = source->make(samples, {});
    EXPECT_EQ(raw.tensors[0].scalar_type(), at::kByte);
    EXPECT_EQ(raw.weight, static_cast<double>(samples.size()));
    const Batch expected = image_source(made_images(20, 5), kScale)->make(samples, {});
    EXPECT_TRUE(upload.take(raw).tensors[0].equal(expected.tensors[0]));
  }
}

TEST(Upload, DoesNotCopyOnTheCpu) {
  EXPECT_EQ(image_form_for(c10::kCPU), ImageForm::kNormalised);
  EXPECT_EQ(image_form_for(c10::Device(c10::kCUDA, 0)), ImageForm::kPinnedBytes);
  const auto source = image_source(made_images(3, 4), kScale);
  Upload upload(*source, c10::kCPU);
  const Batch batch = source->make(kFirst, {});
  EXPECT_EQ(upload.take(batch).tensors[0].const_data_ptr(), batch.tensors[0].const_data_ptr());
}

TEST(Upload, RefusesTensorsThatDifferFromTheDescription) {
  const auto source = image_source(made_images(3, 4), kScale);
  Upload upload(*source, c10::kCPU);
  const Batch larger = image_source(made_images(3, 5), kScale)->make(kFirst, {});
  try {
    upload.take(larger);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()),
              "make() of the data source returned tensor 0 of a batch as Float [1, 1, 5, 5], but describe() lists it as Float "
              "[1, 4, 4] for each sample; a batch needs the number of samples as an additional first dimension. Change make() "
              "or describe()");
  }
  EXPECT_THROW(upload.take({.tensors = {source->make(kFirst, {}).tensors[0]}, .weight = 1}), UsageError);
}

}  // namespace
}  // namespace ddprun::trainer
