// What to write instead of something that other languages and editors take for JSON. Called by json_positions.cpp. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// "UTF-16" or "UTF-32" where the text begins as an editor that saves those does: with its mark, or with zero bytes beside
// '{'. Empty: neither.
std::string_view wide_encoding(std::string_view text);

// ": write 8 ..." for 010, 0x10, 1_000 and the like; the word begins with a digit or '-' and is no JSON number.
std::string number_hint(std::string_view word);

// ": write true" for True and the like; the word is not empty.
std::string literal_hint(std::string_view word);

}  // namespace ddprun
