// Parses numbers with a fraction. std::from_chars would do, but it makes a program load the C library's math library, which
// took 0.08 ms of each of ddprun's starts.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ddprun {

struct Decimal {
  double value = 0;        // infinite if the number is too large
  std::size_t length = 0;  // number of characters parsed
};

// The number at the start of the text: an optional minus sign, digits with or without a point, an optional exponent. No spaces,
// no plus sign, no hexadecimal digits, no "inf" and "nan". nullopt if the text does not start with a number.
std::optional<Decimal> leading_decimal(std::string_view text);

}  // namespace ddprun
