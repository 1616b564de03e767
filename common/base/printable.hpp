// Text that may quote anything a user or a file gave, made safe for a terminal. Called where messages are put together. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

enum class LineEnds { kEscape, kKeep };

// Control characters become \u00XX, so that no quoted key can move the cursor or change colours; bytes that are not UTF-8
// become \xXX. Everything else stays.
std::string printable(std::string_view text, LineEnds line_ends = LineEnds::kEscape);

}  // namespace ddprun
