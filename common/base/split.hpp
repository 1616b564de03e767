// Splits a text at a character, and removes surrounding spaces. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ddprun {

// Returns the parts of `text` between occurrences of the character `at`, as views into `text`. "a,b," has three parts, and an
// empty text has one.
inline std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

inline std::string_view without_spaces_around(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace ddprun
