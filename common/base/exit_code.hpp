// The exit codes of ddprun and ddptrain. The codes never change, because Slurm, Kubernetes (podFailurePolicy) and shell
// scripts depend on them. docs/exit-codes.md describes the codes for users.
//
// If a worker's exit ends the job, ddprun exits with that worker's code, or with 128+N if signal N killed the worker. The
// codes 80 to 90 are for all other causes. launcher/agent_state/job_ending.hpp determines the exit code of a job. If an error
// occurs before the start of the job, the exit code is the code of the exception type (common/base/error.hpp). If ddprun is
// called as torchrun, main() maps the exit code to 0, 1 or 2.
#pragma once

namespace ddprun {

enum class ExitCode : int {
  kDone = 0,
  kUsage = 2,          // wrong command line or config; the job is never restarted
  kPeersMissing = 80,  // too few nodes joined in time
  kTokenRefused = 81,  // missing, weak or wrong token
  kBudgetSpent = 82,   // the restart budget is spent, and the last failure was not the exit of a worker
  kNoProgress = 83,    // the same failure occurred at the same step after two starts of the workers
  kOutOfMemory = 84,   // out of memory, and no setting is left that would reduce memory use
  kPreempted = 85,     // stopped by a signal after saving a checkpoint: the scheduler should requeue the job
  kMinority = 86,      // this node is cut off from the majority of the nodes
  // checkpoints exist, but none is valid; training does not silently start from scratch
  kBadCheckpoint = 87,
  kDiverged = 88,    // the training loss is NaN or infinite, or the training states of the ranks differ
  kInternal = 89,    // a bug in ddprun, or a resource of the machine is exhausted
  kSuperseded = 90,  // a newer invocation of ddprun continues this run
};

}  // namespace ddprun
