// Numbers as people and Python write them: spaces around them and a plus sign are allowed, any other character besides the
// digits is not. It is used wherever an option's text becomes a number. Pure.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ddprun {

inline std::string_view without_spaces_around(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

inline std::string_view without_spaces_and_plus(std::string_view text) {
  text = without_spaces_around(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  text = without_spaces_and_plus(text);
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// Whether the text is a number of any size, even one that is too large for parse_number().
template <typename Number>
bool reads_as_number(std::string_view text) {
  if (const auto number = parse_number<Number>(text)) return std::isfinite(static_cast<double>(*number));
  text = without_spaces_and_plus(text);
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc::result_out_of_range && stop == end;
}

inline std::optional<std::int64_t> parse_whole(std::string_view text) {
  return parse_number<std::int64_t>(text);
}

inline std::optional<double> parse_decimal(std::string_view text) {
  const auto number = parse_number<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

}  // namespace ddprun
