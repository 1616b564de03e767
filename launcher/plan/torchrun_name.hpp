// The differences when the program is started under the name torchrun, through a link: its banner and its exit codes. main()
// calls these functions. The plan (as_torchrun) and --help depend on the same name. Pure except for the time and the process id
// in the banner.
#pragma once

#include <string>
#include <string_view>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Decides by the last part of argv[0].
CalledAs name_called_by(std::string_view argv0);

// The banner that torchrun prints when it sets OMP_NUM_THREADS=1 for workers. Empty if torchrun would not set it, or if this
// program was not started under the name torchrun.
std::string threads_banner(const Plan& plan, const Environment& environment);

// torchrun exits with 0, or with 1 for every failure. Only a command line that cannot be parsed gives 2.
int torchruns_exit_code(int exit_code);

}  // namespace ddprun
