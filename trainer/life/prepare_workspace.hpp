// Prepares the Workspace of a group that has agreed on its state: that of make_workspace(), plus the rank's checkpoints and
// ledger. Worker calls it before training.
#pragma once

#include <optional>

#include "trainer/life/membership.hpp"
#include "trainer/life/process.hpp"
#include "trainer/life/run.hpp"
#include "trainer/life/state_source.hpp"
#include "trainer/loop/workspace.hpp"

namespace ddprun::trainer {

// Collective. At its end it reports the new group to the agent, and records the number of ranks in the state. `work` receives
// each object as soon as it exists. After an error they stay there for the error handler, since destroying them may wait for a
// peer. Throws SupersededError if a later round writes checkpoints already, and what the process group throws for a lost peer.
void prepare_workspace(std::optional<Workspace>& work, Process& process, Membership& membership, StateSource& source,
                       const Run& run);

}  // namespace ddprun::trainer
