// The output of --version and `ddprun version`. main() and run_subcommand() call it.
#pragma once

#include <string>

namespace ddprun {

// Returns three lines: version and commit; the protocol version of the agents; the ddptrain that would run a train.json, with
// the LibTorch version that it was built with. That version is read from the file: running ddptrain would load LibTorch, which
// may be missing.
std::string version_text();

}  // namespace ddprun
