// How signals are written everywhere: in reports, on the console and in errors. Called by whoever names one.
#pragma once

#include <string>

namespace ddprun {

// "SIGKILL"; "signal 99" for one without a name. Any thread.
std::string signal_name(int signal);

}  // namespace ddprun
