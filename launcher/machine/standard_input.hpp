// What descriptor 0 of this process is, as far as it matters to who may read it.
#pragma once

#include <unistd.h>

namespace ddprun {

struct StandardInput {
  bool terminal = false;
  bool in_foreground = false;  // of that terminal: this process' group is the one that it sends keys to
};

inline StandardInput own_standard_input() {
  if (::isatty(STDIN_FILENO) != 1) return {};
  return {.terminal = true, .in_foreground = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()};
}

}  // namespace ddprun
