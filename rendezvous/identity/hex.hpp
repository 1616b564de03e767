// Converts bytes to lower-case hexadecimal text. It is used for names that contain digests or ids, and for tokens.
#pragma once

#include <iterator>
#include <string>

namespace ddprun {

// Each byte of the range `bytes` becomes two digits. Memory for the whole text is reserved first. So the text is never moved,
// and no copy of a token is left in freed memory.
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
