// Chooses the workers' standard input: ours or /dev/null. plan.cpp calls it. Pure.
#pragma once

#include "launcher/machine/standard_input.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

inline constexpr const char* kTerminalIsKeptText =
    "the workers' standard input is /dev/null: a terminal is passed on to a single worker (--nproc-per-node 1), and only in "
    "the foreground; a file or a pipe reaches all of them";

// `workers`: number of workers on this node. All workers of a script share a file or a pipe, as under torchrun. A terminal is
// passed on only to a single worker, while ddprun is in the foreground. Each worker has its own session, so job control does
// not reach it: several workers, or one in the background, would take the shell's keys.
inline WorkersInput input_of_workers(Plan::Kind kind, int workers, const StandardInput& ours) {
  if (kind == Plan::Kind::kTrain) return WorkersInput::kNothing;  // ddptrain reads no standard input
  if (!ours.terminal) return WorkersInput::kOurs;
  return workers == 1 && ours.in_foreground ? WorkersInput::kOurs : WorkersInput::kTerminalIsKept;
}

}  // namespace ddprun
