// What descriptor 0 of this process is, as far as that decides who may read it.
#pragma once

#include <unistd.h>

namespace ddprun {

struct StandardInput {
  bool terminal = false;
  bool in_foreground = false;  // this process group is the one that gets the terminal's keys
};

inline StandardInput own_standard_input() {
  if (::isatty(STDIN_FILENO) != 1) return {};
  return {.terminal = true, .in_foreground = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()};
}

}  // namespace ddprun
