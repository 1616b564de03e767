// Explains which program or limit usually sends a signal that ended a worker. The code is pure: no I/O, no clock. Sources:
// signal(7), getrlimit(2).
#pragma once

#include <string>

namespace ddprun {

// Returns the usual sender of that signal, and what to do about it. The result is empty for a signal with many possible reasons
// (SIGSEGV), or if the reason is found in a different way (SIGKILL).
std::string reason_of_signal(int signal);

}  // namespace ddprun
