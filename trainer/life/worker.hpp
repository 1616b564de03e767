// One worker, from its command line to its exit code: the process, its groups, the state, training, and the report of errors to
// the agent, in the exit code and on stderr. Called by main().
#pragma once

#include "trainer/life/subject.hpp"
#include "trainer/surroundings/options.hpp"

namespace ddprun::trainer {

// Trains. Called once, by main(), before any thread exists. Returns the exit code of a clean end. An error is reported and ends
// the process inside this call: the destructor of a process group with a lost peer may never return.
int run_worker(const Options& options, const Subject& subject);

// main() of a worker program: parses ddptrain's command line and runs the command. Errors are one line on stderr.
int run_worker_main(int argc, char** argv, const Subject& subject);

}  // namespace ddprun::trainer
