// Explains which program or limit usually sends a signal that ended a worker. Pure. Sources: signal(7), getrlimit(2).
#pragma once

#include <string>

namespace ddprun {

// The usual sender of that signal, and what to do about it. Empty for a signal with many possible reasons (SIGSEGV), or if the
// reason is found in a different way (SIGKILL).
std::string reason_of_signal(int signal);

}  // namespace ddprun
