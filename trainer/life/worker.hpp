// One worker, from its command line to its exit code: the process, its groups, the state and the training. It reports errors to
// the agent, in its exit code and on stderr. main() calls it.
#pragma once

#include "trainer/life/subject.hpp"
#include "trainer/surroundings/options.hpp"

namespace ddprun::trainer {

// Trains with the given options. main() calls this once, before any thread exists. Returns the exit code if training ends
// normally. An error is reported and ends the process inside this call, because the destructor of a process group with a lost
// rank may never return.
int run_worker(const Options& options, const Subject& subject);

// The main() function of a worker program. It parses ddptrain's command line and runs the command. An error is one line on
// stderr.
int run_worker_main(int argc, char** argv, const Subject& subject);

}  // namespace ddprun::trainer
