// Names of signals, for reports, console, errors and TORCHELASTIC_SIGNALS_TO_HANDLE.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// "KILL"; empty for a signal without a name, such as a real-time signal. Any thread.
std::string_view signal_abbreviation(int signal);

// "SIGKILL"; "signal 99" for a signal without a name. Any thread.
std::string signal_name(int signal);

}  // namespace ddprun
