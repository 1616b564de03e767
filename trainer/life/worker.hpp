// One worker, from its command line to its exit code: the process, its groups, the state and the training. Errors are reported
// to the agent, in the exit code and on stderr. Called by main().
#pragma once

#include "trainer/life/subject.hpp"
#include "trainer/surroundings/options.hpp"

namespace ddprun::trainer {

// Trains. Called once, by main(), before any thread exists. Returns the exit code if training ends normally. An error is
// reported and ends the process inside this call, because the destructor of a process group with a lost rank may never return.
int run_worker(const Options& options, const Subject& subject);

// The main() function of a worker program. Parses ddptrain's command line and runs the command. Errors are one line on stderr.
int run_worker_main(int argc, char** argv, const Subject& subject);

}  // namespace ddprun::trainer
