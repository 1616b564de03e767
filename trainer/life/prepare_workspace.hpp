// The Workspace of a group that has agreed on its state: make_workspace()'s, and what the rank adds to it, checkpoints and the
// ledger. Worker calls it before it trains.
#pragma once

#include <optional>

#include "trainer/life/membership.hpp"
#include "trainer/life/process.hpp"
#include "trainer/life/run.hpp"
#include "trainer/life/state_source.hpp"
#include "trainer/loop/workspace.hpp"

namespace ddprun::trainer {

// Collective. At its end the agent hears that this rank is there, and the state knows who shares its batches from here on.
// `work` holds what is made as soon as it is: an error leaves it to who reports that, since taking it apart may wait for a
// peer. Throws SupersededError when a later round writes checkpoints already, and what the process group throws for a lost
// peer.
void prepare_workspace(std::optional<Workspace>& work, Process& process, Membership& membership, StateSource& source,
                       const Run& run);

}  // namespace ddprun::trainer
