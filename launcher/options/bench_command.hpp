// `ddprun bench`: a job whose program is `ddptrain bench` (trainer/bench). The code is pure: no I/O, no clock.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddprun {

// Returns the command line of the job, without the name ddprun. `args` are the arguments after "bench": the collective, then
// options of the launcher and of `ddptrain bench` in any order. `trainer` is the path of ddptrain. Throws UsageError if the
// first argument is not the name of a collective.
std::vector<std::string> command_of_bench(std::span<const std::string> args, const std::string& trainer);

}  // namespace ddprun
