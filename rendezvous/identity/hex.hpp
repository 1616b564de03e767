// Converts bytes to lower-case hexadecimal text, for tokens and for names that contain digests or ids.
#pragma once

#include <iterator>
#include <string>

namespace ddprun {

// Returns two hexadecimal digits for each byte of `bytes`. The function first reserves memory for the whole text, so the text
// never moves. If a token moved, a copy of it would remain in freed memory.
template <class Bytes>
std::string to_hex(const Bytes& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * std::size(bytes));
  for (const auto byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

}  // namespace ddprun
