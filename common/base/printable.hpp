// Escapes text from a user or a file before it is written to a terminal. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

// Returns the size of the first character in bytes; 0 if `text` does not start with a UTF-8 character. `text` must not be
// empty.
std::size_t bytes_of_first_character(std::string_view text);

// Returns the longest prefix of the text that has at most `limit` bytes and does not end within a UTF-8 character.
std::string_view cut_to(std::string_view text, std::size_t limit);

enum class LineEnds { kEscape, kKeep };  // kKeep: line ends and tabs are not escaped

// Replaces control characters by \u00XX, so that quoted text cannot move the cursor or change colours. Replaces bytes that are
// not UTF-8 by \xXX. All other characters stay the same.
std::string printable(std::string_view text, LineEnds line_ends = LineEnds::kEscape);

}  // namespace ddprun
