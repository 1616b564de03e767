// Tests reductions: rounding of 16-bit types, NaN, overflow of integers, the order of operations, and the reductions that each
// type supports. Tests of whole collectives (shared_memory/collectives_test.cpp) compare all types and operations with closed
// forms.
#include "trainer/collectives/reduction.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace ddprun::trainer::collectives {
namespace {

template <class T>
std::vector<T> reduce_all(ElementType type, Reduction reduction, const std::vector<std::vector<T>>& of_ranks) {
  std::vector<const std::byte*> inputs;
  for (const std::vector<T>& each : of_ranks) inputs.push_back(reinterpret_cast<const std::byte*>(each.data()));
  std::vector<T> result(of_ranks[0].size());
  std::byte* const output = reinterpret_cast<std::byte*>(result.data());
  reduce_in_order(type, reduction, inputs, {&output, 1}, result.size());
  return result;
}

// Returns the 16-bit number nearest to `value`. `near` is at most one step away from it. Positive 16-bit floats have the same
// order as their bits, so only the neighbours of `near` are compared.
template <class Widen>
std::uint16_t nearest(float value, std::uint16_t near, const Widen& widen) {
  const double wanted = std::abs(static_cast<double>(value));
  std::uint16_t best = near & 0x7fff;
  for (const int step : {-1, 1}) {
    const auto other = static_cast<std::uint16_t>((near & 0x7fff) + step);
    if (other > 0x7fff) continue;
    const double before = std::abs(static_cast<double>(widen(best)) - wanted);
    const double after = std::abs(static_cast<double>(widen(other)) - wanted);
    if (after < before || (after == before && other % 2 == 0)) best = other;
  }
  return static_cast<std::uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

TEST(Reduction, HalfAndBfloat16ConvertExactlyAndRoundToTheNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    const float half = float_of_half(stored), bfloat = float_of_bfloat16(stored);
    if (std::isnan(half)) {
      EXPECT_TRUE(std::isnan(float_of_half(half_of_float(half))));
    } else {
      ASSERT_EQ(half_of_float(half), stored);
    }
    if (std::isnan(bfloat)) {
      EXPECT_TRUE(std::isnan(float_of_bfloat16(bfloat16_of_float(bfloat))));
    } else {
      ASSERT_EQ(bfloat16_of_float(bfloat), stored);
    }
  }
  EXPECT_EQ(float_of_half(0x3c01), 1.0009765625f);
  EXPECT_EQ(float_of_half(0x0001), 0x1p-24f);
  EXPECT_EQ(float_of_bfloat16(0x3f81), 1.0078125f);
  // The values are floats of all magnitudes, and values that are exactly between two 16-bit numbers.
  for (std::uint32_t bits = 0x2f000000; bits < 0x477fe000; bits += 0x1000 - (bits % 7 == 0 ? 1 : 0)) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const float value = std::bit_cast<float>(bits | sign);
      ASSERT_EQ(half_of_float(value), nearest(value, half_of_float(value), float_of_half)) << value;
      ASSERT_EQ(bfloat16_of_float(value), nearest(value, bfloat16_of_float(value), float_of_bfloat16)) << value;
    }
  }
  EXPECT_EQ(half_of_float(65519.0f), 0x7bff);
  EXPECT_EQ(half_of_float(65520.0f), 0x7c00);  // infinity
  EXPECT_EQ(half_of_float(0x1p-25f), 0);       // a tie with 0
  EXPECT_EQ(bfloat16_of_float(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(Reduction, HalfRoundsAfterEachAddition) {
  // If the sum were rounded after each addition, 2048 + 1 would be 2048 each time. The exact sum is 2051, which rounds to
  // 2052.
  const std::uint16_t large = half_of_float(2048), one = half_of_float(1);
  const auto sum = reduce_all<std::uint16_t>(ElementType::kF16, Reduction::kSum, {{large}, {one}, {one}, {one}});
  EXPECT_EQ(float_of_half(sum[0]), 2048.0f);
}

TEST(Reduction, OrderIsThatOfRanks) {
  const auto sum = reduce_all<float>(ElementType::kF32, Reduction::kSum, {{1e8f, 1}, {1, 1e8f}, {-1e8f, -1e8f}, {1, 1}});
  EXPECT_EQ(sum, (std::vector<float>{1, 1}));  // 1e8 + 1 is 1e8
}

TEST(Reduction, NanOfAnyRankIsTheMinimumAndMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
    for (const float result : reduce_all<float>(ElementType::kF32, reduction, {{nan, 1, 1}, {1, nan, 1}, {2, 2, nan}})) {
      EXPECT_TRUE(std::isnan(result));
    }
  }
}

TEST(Reduction, IntegersWrapAround) {
  const auto sum = reduce_all<std::int8_t>(ElementType::kI8, Reduction::kSum, {{127}, {2}});
  EXPECT_EQ(sum[0], -127);
  const auto product = reduce_all<std::int16_t>(ElementType::kI16, Reduction::kProduct, {{-1}, {-32768}});
  EXPECT_EQ(product[0], -32768);
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((reduce_all<std::int64_t>(ElementType::kI64, Reduction::kSum, {{large}, {large}})[0]), -2);
}

TEST(Reduction, AnyByteThatIsNotZeroIsTrue) {
  EXPECT_EQ((reduce_all<std::uint8_t>(ElementType::kBool, Reduction::kSum, {{4, 0, 2}, {8, 0, 0}})),
            (std::vector<std::uint8_t>{1, 0, 1}));
  EXPECT_EQ((reduce_all<std::uint8_t>(ElementType::kBool, Reduction::kAnd, {{4, 0, 2}, {8, 0, 0}})),
            (std::vector<std::uint8_t>{1, 0, 0}));
}

TEST(Reduction, AnOutputMayBeAnInput) {
  std::vector<float> first(5000, 1), second(5000, 2);
  std::byte* const buffers[] = {reinterpret_cast<std::byte*>(first.data()), reinterpret_cast<std::byte*>(second.data())};
  const std::byte* const inputs[] = {buffers[0], buffers[1]};
  reduce_in_order(ElementType::kF32, Reduction::kSum, inputs, buffers, first.size());
  EXPECT_EQ(first, std::vector<float>(5000, 3));
  EXPECT_EQ(second, first);
}

TEST(Reduction, EachTypeHasItsReductions) {
  EXPECT_TRUE(can_reduce(ElementType::kBf16, Reduction::kAverage));
  EXPECT_TRUE(can_reduce(ElementType::kU8, Reduction::kXor));
  EXPECT_FALSE(can_reduce(ElementType::kU8, Reduction::kAverage));
  EXPECT_FALSE(can_reduce(ElementType::kBool, Reduction::kAverage));
  EXPECT_FALSE(can_reduce(ElementType::kF32, Reduction::kAnd));
  EXPECT_FALSE(can_reduce(ElementType::kF32, Reduction::kNone));
}

}  // namespace
}  // namespace ddprun::trainer::collectives
