// Finds the first error in a JSON string. json_positions.cpp calls fault_in_string() if nlohmann/json has rejected the string.
// The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ddprun {

struct StringFault {
  enum class Kind {
    kEndOfText,  // the closing quote is missing
    kLineEnd,    // the line ends before the closing quote
    kControlCharacter,
    kEscape,    // an invalid escape after a backslash
    kEncoding,  // not UTF-8
  } kind{};
  std::size_t offset = 0;
};

// Returns the first fault of the string whose opening quote is at `begin`; nullopt if there is none.
std::optional<StringFault> fault_in_string(std::string_view text, std::size_t begin);

}  // namespace ddprun
