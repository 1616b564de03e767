// Numbers in the formats of printf(3), as text. It is used for the console's lines.
#pragma once

#include <cstdio>
#include <string>

namespace ddprun {

// At most 127 bytes; a longer text is cut.
template <class... Values>
std::string printed(const char* format, Values... values) {
  char text[128];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace ddprun
