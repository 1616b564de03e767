// Which standard input the workers get: ours, or /dev/null. Part of plan.cpp. Pure.
#pragma once

#include "launcher/machine/standard_input.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Of `workers` on this node. A file or a pipe goes to all workers of a script, as under torchrun: they share it. A terminal
// goes to a single worker while ddprun is in the foreground: job control does not reach workers, which have sessions of their
// own, so several of them, or one in the background, would take the shell's keys.
inline WorkersInput input_of_workers(Plan::Kind kind, int workers, const StandardInput& ours) {
  if (kind == Plan::Kind::kTrain) return WorkersInput::kNothing;  // it reads none
  if (!ours.terminal) return WorkersInput::kOurs;
  return workers == 1 && ours.in_foreground ? WorkersInput::kOurs : WorkersInput::kTerminalIsKept;
}

}  // namespace ddprun
