// How signals are written everywhere: in reports, on the console, in errors and in TORCHELASTIC_SIGNALS_TO_HANDLE.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// "KILL"; empty for one without a name, as the real-time signals are. Any thread.
std::string_view signal_abbreviation(int signal);

// "SIGKILL"; "signal 99" for one without a name. Any thread.
std::string signal_name(int signal);

}  // namespace ddprun
