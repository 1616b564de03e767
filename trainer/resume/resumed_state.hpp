// Brings the state of a checkpoint to every rank, including ranks that cannot read it: the holders load it and send it to the
// others. trainer/life/state_source.cpp calls it with the choice of resume.hpp.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/parallel/peers.hpp"
#include "trainer/resume/resume.hpp"
#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// Information of the first holder; the same on all ranks.
struct Resumed {
  std::string path;          // path of the checkpoint on the first holder's machine
  std::string differences;   // result of rounding_differences()
  std::int64_t planned = 0;  // the run's total_steps when the checkpoint was written
};

// Collective. Sets `origin` to kCheckpoint. After an exception `origin` is that of a whole state only if `state` already held
// the checkpoint. Throws UsageError on a holder whose checkpoint turns out unreadable or does not fit the config. The other
// ranks then lose a peer.
Resumed resume_state(TrainingState& state, StateOrigin& origin, const ResumeFrom& from, const TrainConfig& config,
                     const RunLength& length, const Peers& peers);

}  // namespace ddprun::trainer
