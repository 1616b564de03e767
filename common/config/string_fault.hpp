// What is wrong inside a JSON string, and where. json_positions.cpp asks when the parser has refused a text at a string. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ddprun {

struct StringFault {
  enum class Kind {
    kEndOfText,  // the closing quote is missing
    kLineEnd,    // likewise, on that line
    kControlCharacter,
    kEscape,    // what stands behind a backslash
    kEncoding,  // no UTF-8
  } kind{};
  std::size_t offset = 0;
};

// The first fault of the string whose opening quote is at `begin`.
std::optional<StringFault> fault_in_string(std::string_view text, std::size_t begin);

}  // namespace ddprun
