// The exit codes of ddprun and ddptrain. They are stable, so that Slurm, Kubernetes (podFailurePolicy) and shell scripts can
// act on them. docs/exit-codes.md is the table for users. A worker's own exit code is passed through unchanged, and 128+N
// stands for a worker that died of signal N. Only causes other than a worker's exit have a code of 80 to 90. AgentState ends a
// job in finish() or end_with_stuck_workers(). The code comes from the judge, the coordinator (multi-node) or the agent. An
// error before the start of the job has its own code (common/base/error.hpp). Under the name torchrun, main() maps it to 0, 1
// or 2.
#pragma once

namespace ddprun {

enum class ExitCode : int {
  kDone = 0,
  kUsage = 2,           // wrong usage or config; never restarted
  kPeersMissing = 80,   // rendezvous ended without enough members
  kTokenRefused = 81,   // wrong or missing token
  kBudgetSpent = 82,    // restart budget spent on causes other than a worker's exit
  kNoProgress = 83,     // the same failure at the same step in two rounds
  kOutOfMemory = 84,    // out of memory, and nothing can be made smaller
  kPreempted = 85,      // stopped by a signal after a save: please requeue
  kMinority = 86,       // cut off from the majority of the members
  kBadCheckpoint = 87,  // checkpoints exist but none is valid: training does not silently start over
  kDiverged = 88,       // NaN or infinite loss, or ranks that no longer agree
  kInternal = 89,       // a bug in ddprun, or a resource of the machine is exhausted
  kSuperseded = 90,     // another start continues this run: this one has nothing more to do
};

}  // namespace ddprun
