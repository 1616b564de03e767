// Finds the first error inside a JSON string. json_positions.cpp calls it if the parser has refused a text at a string. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ddprun {

struct StringFault {
  enum class Kind {
    kEndOfText,  // the closing quote is missing
    kLineEnd,    // the closing quote is missing on that line
    kControlCharacter,
    kEscape,    // an invalid escape after a backslash
    kEncoding,  // not UTF-8
  } kind{};
  std::size_t offset = 0;
};

// The first fault of the string whose opening quote is at `begin`.
std::optional<StringFault> fault_in_string(std::string_view text, std::size_t begin);

}  // namespace ddprun
