// Bytes as lower-case hexadecimal text. Used to make names from digests and ids.
#pragma once

#include <string>

namespace ddprun {

// `bytes` is a range of one-byte values; each becomes two digits.
template <class Bytes>
std::string to_hex(const Bytes& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

}  // namespace ddprun
