// Escapes text from a user or a file for a terminal. The code that composes messages calls it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

// Size of the first character; `text` must not be empty. 0 if it does not start with a UTF-8 character.
std::size_t bytes_of_first_character(std::string_view text);

enum class LineEnds { kEscape, kKeep };  // kKeep: for a text with several lines; also keeps tabs

// Control characters become \u00XX, so that no quoted key can move the cursor or change colors. Bytes that are not UTF-8 become
// \xXX. Everything else is unchanged.
std::string printable(std::string_view text, LineEnds line_ends = LineEnds::kEscape);

}  // namespace ddprun
