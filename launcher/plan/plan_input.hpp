// Which standard input the workers get: ours, or /dev/null. plan.cpp calls it. Pure.
#pragma once

#include "launcher/machine/standard_input.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

inline constexpr const char* kTerminalIsKeptText =
    "the workers' standard input is /dev/null: a terminal is passed on to a single worker (--nproc-per-node 1), and only in "
    "the foreground; a file or a pipe reaches all of them";

// `workers` are those of this node. All workers of a script share a file or a pipe, as under torchrun. A single worker gets a
// terminal while ddprun is in the foreground. Workers have sessions of their own, which job control does not reach: several
// workers, or one in the background, would take the shell's keys.
inline WorkersInput input_of_workers(Plan::Kind kind, int workers, const StandardInput& ours) {
  if (kind == Plan::Kind::kTrain) return WorkersInput::kNothing;  // ddptrain reads no standard input
  if (!ours.terminal) return WorkersInput::kOurs;
  return workers == 1 && ours.in_foreground ? WorkersInput::kOurs : WorkersInput::kTerminalIsKept;
}

}  // namespace ddprun
