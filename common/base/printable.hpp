// Text that may quote anything from a user or a file, made safe for a terminal. The code that composes messages calls it. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

enum class LineEnds { kEscape, kKeep };

// Control characters become \u00XX, so that no quoted key can move the cursor or change colours. Bytes that are not UTF-8
// become \xXX. Everything else stays as it is.
std::string printable(std::string_view text, LineEnds line_ends = LineEnds::kEscape);

}  // namespace ddprun
