// One worker, from its command line to its exit code: environment, device, data, peers, run directory, resume, training, and
// what an error becomes for the agent, the exit code and stderr.
#pragma once

#include <string>

#include "trainer/surroundings/options.hpp"

namespace ddprun::trainer {

// "ddptrain 0.1.0 (LibTorch 2.11.0)"
std::string version_text();

// Trains. Called once, by main, before any thread exists. Returns the exit code of a clean end; an error is reported and ends
// the process here, since the destructors of a process group whose peer is gone may wait for ever.
int run_worker(const Options& options);

}  // namespace ddprun::trainer
