// Hints for texts that other languages and editors would accept as JSON. json_positions.cpp calls it. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// "UTF-16" or "UTF-32" if the text begins like a file in that encoding: with its byte order mark, or with zero bytes next to
// '{'. Otherwise empty.
std::string_view wide_encoding(std::string_view text);

// ": write 8 ..." for 010, 0x10, 1_000 and the like. The word begins with a digit or '-', and is not a JSON number.
std::string number_hint(std::string_view word);

// ": write true" for True and the like. The word must not be empty.
std::string literal_hint(std::string_view word);

}  // namespace ddprun
