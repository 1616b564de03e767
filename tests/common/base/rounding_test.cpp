// Tests that rounding to the nearest integer gives the same results as the C library.
#include "common/base/rounding.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace ddprun {
namespace {

TEST(RoundToNearest, MatchesTheCLibrary) {
  for (const double value : {0.0, 0.49999999999999994, 0.5, 1.5, 2.5, -0.5, -1.5, 1e15 + 0.5, -1e15 - 0.5, 4503599627370497.5})
    EXPECT_EQ(round_to_nearest(value), std::llround(value)) << value;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> values(-1e12, 1e12);
  for (int i = 0; i < 10000; ++i) {
    const double value = values(random);
    EXPECT_EQ(round_to_nearest(value), std::llround(value)) << value;
  }
}

TEST(RoundToNearest, ClampsToItsBounds) {
  constexpr long long kLargest = 1LL << 62;
  EXPECT_EQ(round_to_nearest(1e300), kLargest);
  EXPECT_EQ(round_to_nearest(std::numeric_limits<double>::infinity()), kLargest);
  EXPECT_EQ(round_to_nearest(-std::numeric_limits<double>::infinity()), -kLargest);
  EXPECT_EQ(round_to_nearest(std::numeric_limits<double>::quiet_NaN()), -kLargest);
}

}  // namespace
}  // namespace ddprun
