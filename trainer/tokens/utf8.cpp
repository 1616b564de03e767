#include "trainer/tokens/utf8.hpp"

#include <algorithm>

namespace ddprun::trainer {

Character first_character(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {.code = lead, .bytes = 1};
  const std::size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  if (length == 0) return {.code = kReplacementCharacter, .bytes = 1, .valid = false};
  // The smallest and largest valid second byte. They exclude overlong encodings, surrogates, and codes above U+10FFFF.
  const unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code = lead & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const bool continues = i < text.size() && byte(i) >= (i == 1 ? least : 0x80) && byte(i) <= (i == 1 ? most : 0xBF);
    if (!continues) return {.code = kReplacementCharacter, .bytes = i, .valid = false};
    code = (code << 6) | (byte(i) & 0x3F);
  }
  return {.code = code, .bytes = length};
}

std::string as_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto ascii = static_cast<std::size_t>(
        std::ranges::find_if(bytes, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }) - bytes.begin());
    text += bytes.substr(0, ascii);
    bytes.remove_prefix(ascii);
    if (bytes.empty()) break;
    const Character character = first_character(bytes);
    text += character.valid ? bytes.substr(0, character.bytes) : kReplacementBytes;
    bytes.remove_prefix(character.bytes);
  }
  return text;
}

}  // namespace ddprun::trainer
