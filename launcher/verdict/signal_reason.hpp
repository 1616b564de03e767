// Who usually sends a signal that ended a worker. Pure. Sources: signal(7), getrlimit(2).
#pragma once

#include <string>

namespace ddprun {

// Who sends that signal, and what to do about it. Empty for a signal with many possible reasons (SIGSEGV), or whose reason is
// found otherwise (SIGKILL).
std::string reason_of_signal(int signal);

}  // namespace ddprun
