// What changes when the program is started by the name torchrun, through a link: its banner and its exit codes. main() asks.
// The plan (as_torchrun) and --help follow the same name. Pure but for the clock and the process id in the banner.
#pragma once

#include <string>
#include <string_view>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// By the last part of argv[0].
CalledAs name_called_by(std::string_view argv0);

// torchrun says so when it sets OMP_NUM_THREADS=1 for workers; empty when it would not, or under another name.
std::string threads_banner(const Plan& plan, const Environment& environment);

// torchrun ends with 0, or with 1 whatever failed; only a command line that cannot be parsed is 2.
int torchruns_exit_code(int exit_code);

}  // namespace ddprun
