// Quotes a piece of a file or of another process's message in an error text: printable and short. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/printable.hpp"

namespace ddprun {

inline constexpr std::size_t kMostQuotedBytes = 100;

// At most kMostQuotedBytes bytes of `text`, cut between two characters. A cut text ends with "... (N bytes)".
inline std::string short_quote(std::string_view text) {
  if (text.size() <= kMostQuotedBytes) return printable(text);
  std::size_t kept = kMostQuotedBytes;
  // A continuation byte of UTF-8 at the cut belongs to a character that began before it.
  while (kept > kMostQuotedBytes - 4 && (static_cast<unsigned char>(text[kept]) & 0xc0U) == 0x80U) --kept;
  return printable(text.substr(0, kept)) + "... (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace ddprun
