// Parses numbers in a text. For a double, ddprun calls leading_decimal(). It does not call std::from_chars(), because that
// function needs the C math library, whose loading takes 0.08 ms at each start.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

namespace ddprun {

// Parses a text that contains a number and nothing else. Returns nullopt if the text contains anything else, or if the number
// does not fit into the type. For an integer, `base` is its base (default 10).
template <class Number, class... Base>
std::optional<Number> exact_number(std::string_view text, Base... base) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

struct Decimal {
  double value = 0;        // infinity if the number is too large for a double
  std::size_t length = 0;  // number of characters parsed
};

// Returns the number at the start of the text: an optional minus sign, digits with or without a point, and an optional
// exponent. Spaces, a plus sign, hexadecimal digits, "inf" and "nan" are not accepted. Returns nullopt if the text does not
// start with a number.
std::optional<Decimal> leading_decimal(std::string_view text);

}  // namespace ddprun
