// The state of a checkpoint on every rank, also on those that can't read it: the holders load it and send it to the others.
// Called by trainer/life/state_source.cpp with what resume.hpp has chosen.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/parallel/peers.hpp"
#include "trainer/resume/resume.hpp"
#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// As the first holder knows it; the same on all ranks.
struct Resumed {
  std::string path;          // of the checkpoint, on the first holder's machine
  std::string differences;   // rounding_differences()
  std::int64_t planned = 0;  // total_steps of the run when the checkpoint was written
};

// Collective. `origin` becomes kCheckpoint; after an exception it is a whole state's where the state had come to be the
// checkpoint's before. Throws UsageError on a holder whose checkpoint can't be read after all or does not fit the config; the
// other ranks then lose a peer.
Resumed resume_state(TrainingState& state, StateOrigin& origin, const ResumeFrom& from, const TrainConfig& config,
                     const RunLength& length, const Peers& peers);

}  // namespace ddprun::trainer
