// Differences in behaviour if ddprun is started through a link with the name torchrun: it prints a banner and uses other exit
// codes. main() calls these functions. The plan (as_torchrun) and --help depend on the name too. The code is pure, except that
// the banner contains the time and the process id.
#pragma once

#include <string>
#include <string_view>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Returns kTorchrun if the last path component of argv[0] is "torchrun".
CalledAs name_called_by(std::string_view argv0);

// Returns the banner that torchrun prints when it sets OMP_NUM_THREADS=1 for workers. The result is empty if torchrun would
// not print it, or if ddprun was not started under the name torchrun.
std::string threads_banner(const Plan& plan, const Environment& environment);

// Converts an exit code of ddprun to the exit code that torchrun would return: 0 on success and 1 for every failure. Do not
// use it for an error in the command line, for which torchrun exits with 2.
int torchrun_exit_code(int exit_code);

}  // namespace ddprun
