// Parses numbers in the text of options, in the form that users and Python write. Spaces around the number and a plus sign are
// allowed; other text around the number is not. The code is pure: no I/O, no clock.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/base/numbers.hpp"
#include "common/base/split.hpp"

namespace ddprun {

inline std::string_view without_spaces_and_plus(std::string_view text) {
  text = without_spaces_around(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

// Returns true if the text is a whole number, even one that does not fit into 64 bits.
inline bool reads_as_whole(std::string_view text) {
  text = without_spaces_and_plus(text);
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Returns true if the text is a number, with or without a fractional part.
inline bool reads_as_decimal(std::string_view text) {
  text = without_spaces_and_plus(text);
  const auto number = leading_decimal(text);
  return number && number->length == text.size();
}

inline std::optional<std::int64_t> parse_whole(std::string_view text) {
  text = without_spaces_and_plus(text);
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return number;
}

inline std::optional<double> parse_decimal(std::string_view text) {
  text = without_spaces_and_plus(text);
  const auto number = leading_decimal(text);
  if (!number || number->length != text.size() || !std::isfinite(number->value)) return std::nullopt;
  return number->value;
}

}  // namespace ddprun
