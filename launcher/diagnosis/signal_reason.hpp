// Explains which program or limit usually sends a signal that ended a worker. The code is pure: no I/O, no clock. Sources:
// signal(7), getrlimit(2).
#pragma once

#include <string>

namespace ddprun {

// Returns a text that names the usual sender of the signal and what to do about it. The text is empty for a signal with many
// possible reasons (SIGSEGV), or if other code finds the reason (SIGKILL).
std::string reason_of_signal(int signal);

}  // namespace ddprun
