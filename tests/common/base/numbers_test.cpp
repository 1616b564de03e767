// Tests that the conversion of text to numbers gives the same results as std::from_chars.
#include "common/base/numbers.hpp"

#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <random>
#include <string>

namespace ddprun {
namespace {

TEST(Decimal, AgreesWithFromChars) {
  std::mt19937_64 random(1);
  constexpr std::string_view kCharacters = "0123456789..--+eE xX";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::size_t size = random() % 9; size > 0; --size) text += kCharacters[random() % kCharacters.size()];
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto decimal = leading_decimal(text);
    EXPECT_EQ(decimal.has_value(), error != std::errc::invalid_argument) << '"' << text << '"';
    if (!decimal) continue;
    EXPECT_EQ(decimal->length, static_cast<std::size_t>(stop - text.data())) << '"' << text << '"';
    if (error == std::errc()) {
      EXPECT_EQ(decimal->value, value) << text;
    }
  }
}

TEST(Decimal, OverflowIsInfiniteAndNamesAreRefused) {
  EXPECT_TRUE(std::isinf(leading_decimal("1e999").value().value));
  EXPECT_FALSE(leading_decimal("inf"));
  EXPECT_FALSE(leading_decimal("nan"));
  EXPECT_FALSE(leading_decimal("-inf"));
  EXPECT_EQ(leading_decimal("0x10").value().length, 1u);
}

}  // namespace
}  // namespace ddprun
