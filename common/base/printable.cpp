#include "common/base/printable.hpp"

#include <cstddef>
#include <cstdint>

namespace ddprun {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: the text does not start with a UTF-8 character
};

// Returns the first character of `text`, which must not be empty.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xf0 && first < 0xf8 ? 4 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (bytes == 0 || first >= 0xf8 || text.size() < bytes) return {};
  std::uint32_t code = first & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool too_long = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool no_character = (code >= 0xd800 && code < 0xe000) || code > 0x10ffff;
  return too_long || no_character ? Character{} : Character{code, bytes};
}

std::string hex(std::uint32_t byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {kDigits[byte >> 4 & 0xf], kDigits[byte & 0xf]};
}

}  // namespace

std::size_t bytes_of_first_character(std::string_view text) {
  return first_character(text).bytes;
}

std::string_view cut_to(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return text.substr(0, limit);
}

std::string printable(std::string_view text, LineEnds line_ends) {
  const bool kept = line_ends == LineEnds::kKeep;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    if (bytes == 0) {
      out += "\\x" + hex(static_cast<unsigned char>(text[0]));
    } else if ((code < 0x20 && !(kept && (code == '\n' || code == '\t'))) || (code >= 0x7f && code < 0xa0)) {
      out += "\\u00" + hex(code);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

}  // namespace ddprun
