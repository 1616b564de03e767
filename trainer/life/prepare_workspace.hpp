// Prepares the Workspace of a group whose ranks have agreed on the state: the result of make_workspace(), plus the rank's
// checkpoints and ledger. Worker calls it before training.
#pragma once

#include <optional>

#include "trainer/life/process.hpp"
#include "trainer/life/run.hpp"
#include "trainer/life/state_source.hpp"
#include "trainer/loop/workspace.hpp"

namespace ddprun::trainer {

// This call is collective. At the end it reports the new group to the agent, and records the number of ranks in the state. Each
// object is stored in `work` as soon as it exists. After an error, the objects stay in `work` for the error handler, since
// their destructors may wait for another rank. Throws SupersededError if workers that were started later already write
// checkpoints. Throws the process group's errors if another rank is lost.
void prepare_workspace(std::optional<Workspace>& work, Process& process, StateSource& source, const Run& run);

}  // namespace ddprun::trainer
