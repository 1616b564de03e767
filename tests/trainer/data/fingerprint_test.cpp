// Tests which differences between data sets change the fingerprint, and which differences do not.
#include "trainer/data/fingerprint.hpp"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "trainer/data/images.hpp"

namespace ddprun::trainer {
namespace {

Dataset set_of(std::int64_t samples, std::int64_t side) {
  return {.images = at::arange(samples * side * side).remainder(251).to(at::kByte).reshape({samples, 1, side, side}),
          .labels = at::arange(samples).remainder(10)};
}

DataSets sets_of(std::int64_t samples = 40, std::int64_t side = 4) {
  return {.train = set_of(samples, side), .test = set_of(10, side), .normalization = {}};
}

std::string fingerprint_of(const DataSets& data) {
  return ddprun::trainer::fingerprint_of(Sources{image_source(data.train, {}), image_source(data.test, {})});
}

TEST(Fingerprint, EqualSamplesHaveEqualFingerprints) {
  EXPECT_EQ(fingerprint_of(sets_of()), fingerprint_of(sets_of()));
  EXPECT_EQ(fingerprint_of(sets_of()).find("train 40x1x4x4 "), 0U) << fingerprint_of(sets_of());
}

TEST(Fingerprint, ChangesWithLabelsPixelsAndSize) {
  const std::string one = fingerprint_of(sets_of());
  DataSets other = sets_of();
  other.train.labels[39] = 3;
  EXPECT_NE(fingerprint_of(other), one);
  other = sets_of();
  other.test.images[9][0][3][3] = 1;
  EXPECT_NE(fingerprint_of(other), one);
  EXPECT_NE(fingerprint_of(sets_of(41)), one);
}

// If the data is too large to be read completely, the fingerprint still depends on the first and the last bytes.
TEST(Fingerprint, LargeDataIsSampled) {
  const std::string one = fingerprint_of(sets_of(4000, 32));
  DataSets other = sets_of(4000, 32);
  other.train.images[0][0][0][0] = 77;
  EXPECT_NE(fingerprint_of(other), one);
  other = sets_of(4000, 32);
  other.train.images[3999][0][31][31] = 77;
  EXPECT_NE(fingerprint_of(other), one);
}

}  // namespace
}  // namespace ddprun::trainer
