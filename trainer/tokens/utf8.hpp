// Decodes text that should be UTF-8 but may contain invalid bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun::trainer {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementBytes = "\xef\xbf\xbd";

struct Character {
  char32_t code = 0;      // Unicode code point; kReplacementCharacter for an invalid sequence
  std::size_t bytes = 0;  // length of the character in the text, at least 1
  bool valid = true;
};

// Returns the first character of a text that is not empty. An invalid sequence counts as one character: its longest valid
// prefix, but at least one byte (Unicode 15, chapter 3, "U+FFFD Substitution of Maximal Subparts"). Python's errors="replace"
// does the same.
Character first_character(std::string_view text);

// Returns the text with each invalid sequence replaced by U+FFFD.
std::string as_utf8(std::string_view bytes);

}  // namespace ddprun::trainer
