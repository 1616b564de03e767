// Quotes text from a file, or from a message of another process, in an error message. The quote is printable and short. The
// code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/printable.hpp"

namespace ddprun {

inline constexpr std::size_t kMaxQuotedBytes = 100;

// Returns at most kMaxQuotedBytes bytes of `text`, truncated between two characters. A truncated text ends with "... (N
// bytes)".
inline std::string short_quote(std::string_view text) {
  if (text.size() <= kMaxQuotedBytes) return printable(text);
  std::size_t kept = kMaxQuotedBytes;
  // A UTF-8 continuation byte belongs to a character that starts before the limit, so the whole character is omitted.
  while (kept > kMaxQuotedBytes - 4 && (static_cast<unsigned char>(text[kept]) & 0xc0U) == 0x80U) --kept;
  return printable(text.substr(0, kept)) + "... (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace ddprun
