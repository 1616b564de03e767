// Properties of this process's descriptor 0 that decide which process may read it.
#pragma once

#include <unistd.h>

namespace ddprun {

struct StandardInput {
  bool terminal = false;
  bool in_foreground = false;  // this process group receives the terminal's keys
};

inline StandardInput own_standard_input() {
  if (::isatty(STDIN_FILENO) != 1) return {};
  return {.terminal = true, .in_foreground = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()};
}

}  // namespace ddprun
