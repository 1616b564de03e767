// Numbers in the forms of printf(3), as text. Called where the console's lines are made.
#pragma once

#include <cstdio>
#include <string>

namespace ddprun {

// At most 127 bytes; what is longer is cut.
template <class... Values>
std::string printed(const char* format, Values... values) {
  char text[128];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace ddprun
