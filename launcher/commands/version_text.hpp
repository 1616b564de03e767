// What --version and `ddprun version` print. main() and run_subcommand() call it.
#pragma once

#include <string>

namespace ddprun {

// Three lines: version and commit; the protocol that agents speak; the ddptrain that a train.json would get, and the LibTorch
// that it was built with. It is read out of that file: starting it would load LibTorch, which may not be there.
std::string version_text();

}  // namespace ddprun
