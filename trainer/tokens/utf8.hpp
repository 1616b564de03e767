// Decodes text that should be UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun::trainer {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementBytes = "\xef\xbf\xbd";

struct Character {
  char32_t code = 0;      // kReplacementCharacter for an invalid sequence
  std::size_t bytes = 0;  // at least 1
  bool valid = true;
};

// First character of a text that is not empty. An invalid sequence is as long as its longest valid prefix, at least a byte:
// Unicode 15, chapter 3, "U+FFFD Substitution of Maximal Subparts". Python's "replace" does the same.
Character first_character(std::string_view text);

// Replaces each invalid sequence by U+FFFD.
std::string as_utf8(std::string_view bytes);

}  // namespace ddprun::trainer
