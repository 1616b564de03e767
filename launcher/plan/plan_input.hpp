// Chooses the workers' standard input: ddprun's own standard input, or /dev/null. plan_placement.cpp calls this function. The
// code is pure: no I/O, no clock.
#pragma once

#include "launcher/machine/standard_input.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

inline constexpr const char* kTerminalIsKeptText =
    "the workers' standard input is /dev/null: only a single worker (--nproc-per-node 1) in the foreground gets the terminal; "
    "a file or a pipe would be passed on to all workers";

// Chooses the standard input for `workers` workers on this node. All workers of a script share a file or a pipe, as under
// torchrun. A terminal is given only to a single worker, and only while ddprun is in the foreground. The reason: each worker
// runs in its own session, so the shell's job control cannot stop it from reading the terminal. The worker would then read
// keys that the user types for the shell.
inline WorkersInput input_of_workers(Plan::Kind kind, int workers, const StandardInput& ours) {
  if (kind == Plan::Kind::kTrain) return WorkersInput::kNothing;  // ddptrain does not read its standard input
  if (!ours.terminal) return WorkersInput::kOurs;
  return workers == 1 && ours.in_foreground ? WorkersInput::kOurs : WorkersInput::kTerminalIsKept;
}

}  // namespace ddprun
