// Names of signals, for the report, the console, error messages and TORCHELASTIC_SIGNALS_TO_HANDLE.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// Returns the name without "SIG", such as "KILL". The result is empty for a signal without a name, such as a real-time signal.
// Any thread may call it.
std::string_view signal_abbreviation(int signal);

// Returns the name, such as "SIGKILL", or "signal 99" for a signal without a name. Any thread may call it.
std::string signal_name(int signal);

}  // namespace ddprun
