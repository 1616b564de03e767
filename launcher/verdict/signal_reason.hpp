// What usually sends a signal that ended a worker. Pure. Sources: signal(7), getrlimit(2).
#pragma once

#include <string>

namespace ddprun {

// What sends that signal, and what to do about it; empty where it may be anything (SIGSEGV) or is known better (SIGKILL).
std::string reason_of_signal(int signal);

}  // namespace ddprun
