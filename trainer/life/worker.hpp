// One worker, from its command line to its exit code: the process, its groups, the state, training, and what an error becomes
// for the agent, the exit code and stderr. main calls it.
#pragma once

#include "trainer/life/subject.hpp"
#include "trainer/surroundings/options.hpp"

namespace ddprun::trainer {

// Trains. Called once, by main, before any thread exists. Returns the exit code of a clean end; an error is reported and ends
// the process here, since the destructors of a process group whose peer is gone may wait for ever.
int run_worker(const Options& options, const Subject& subject);

// A worker program's main(): reads the command line of ddptrain, and does what it says. Errors are one line on stderr.
int run_worker_main(int argc, char** argv, const Subject& subject);

}  // namespace ddprun::trainer
