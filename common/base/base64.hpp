// Base64 (RFC 4648, section 4). It encodes bytes for JSON texts, which must be valid UTF-8. The code is pure: no I/O, no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

inline constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t three = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      three = three << 8U | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text.push_back(at + i > bytes.size() ? '=' : kBase64Digits[three >> (18 - 6 * i) & 63U]);
    }
  }
  return text;
}

// Decodes Base64. Returns nullopt for invalid text. It does not check the unused bits of the last digit.
inline std::optional<std::string> from_base64(std::string_view text) {
  static constexpr std::uint8_t kNone = 64;
  static const auto kValues = [] {
    std::array<std::uint8_t, 256> values{};
    values.fill(kNone);
    for (std::size_t i = 0; i < kBase64Digits.size(); ++i) {
      values[static_cast<unsigned char>(kBase64Digits[i])] = static_cast<std::uint8_t>(i);
    }
    return values;
  }();
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t filled = 0;
  while (filled < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++filled;
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char digit : text) {
    const std::uint8_t value = kValues[static_cast<unsigned char>(digit)];
    if (value == kNone) return std::nullopt;
    bits = bits << 6U | value;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 255U));
  }
  return bytes;
}

}  // namespace ddprun
