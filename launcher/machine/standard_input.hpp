// The properties of this process's descriptor 0 that decide which process may read it.
#pragma once

#include <unistd.h>

namespace ddprun {

struct StandardInput {
  bool terminal = false;
  bool in_foreground = false;  // true if this process group is the terminal's foreground group
};

inline StandardInput standard_input_state() {
  if (::isatty(STDIN_FILENO) != 1) return {};
  return {.terminal = true, .in_foreground = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()};
}

}  // namespace ddprun
