// Numbers with a fraction from text. std::from_chars would do, but it makes a program load the C library's mathematics, which
// took 0.08 ms of each of ddprun's starts.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ddprun {

struct Decimal {
  double value = 0;        // infinite: the text's number is too large
  std::size_t length = 0;  // how much of the text it is
};

// The number with which the text begins: an optional minus sign, digits with or without a point, an optional exponent. No
// spaces, no plus sign, no hexadecimal digits, no "inf" and "nan". Nothing: it begins with no number.
std::optional<Decimal> leading_decimal(std::string_view text);

}  // namespace ddprun
