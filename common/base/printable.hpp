// Text that may quote anything from a user or a file, made safe for a terminal. The code that composes messages calls it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

// Of a text that is not empty. 0: it does not begin with a character of UTF-8.
std::size_t bytes_of_first_character(std::string_view text);

enum class LineEnds { kEscape, kKeep };  // kKeep: of a text with several lines; tabs stay as well

// Control characters become \u00XX, so that no quoted key can move the cursor or change colours. Bytes that are not UTF-8
// become \xXX. Everything else stays as it is.
std::string printable(std::string_view text, LineEnds line_ends = LineEnds::kEscape);

}  // namespace ddprun
