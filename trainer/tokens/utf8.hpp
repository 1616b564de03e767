// Characters of a text that should be UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun::trainer {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementBytes = "\xef\xbf\xbd";

struct Character {
  char32_t code = 0;      // kReplacementCharacter for what is none
  std::size_t bytes = 0;  // 1 or more
  bool valid = true;
};

// Of a text that is not empty. What is no character is as long as the beginning of one that it is, at least a byte: Unicode 15,
// chapter 3, "U+FFFD Substitution of Maximal Subparts", and what Python's "replace" does.
Character first_character(std::string_view text);

// With U+FFFD for whatever is no character.
std::string as_utf8(std::string_view bytes);

}  // namespace ddprun::trainer
