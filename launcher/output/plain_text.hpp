// Removes terminal control sequences from a line (ECMA-48): colours, cursor movements and links. Programs write them for a
// terminal, but in the report and in messages about a failure they are unreadable. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

inline std::string plain_text(std::string_view line) {
  constexpr char kEscape = '\x1b';
  std::string plain;
  for (std::size_t at = 0; at < line.size();) {
    if (line[at] != kEscape) {
      plain += line[at++];
      continue;
    }
    const char kind = at + 1 < line.size() ? line[at + 1] : '\0';
    at += 2;
    if (kind == '[') {  // ESC [ is followed by parameters and one final byte
      while (at < line.size() && (line[at] < '@' || line[at] > '~')) ++at;
      ++at;
    } else if (kind == ']') {  // ESC ] is followed by any text up to BEL or ESC
      while (at < line.size() && line[at] != '\a' && line[at] != kEscape) ++at;
      at += at < line.size() && line[at] == kEscape ? 2 : 1;
    }
  }
  return plain;
}

}  // namespace ddprun
