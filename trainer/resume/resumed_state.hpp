// Loads the state of a checkpoint on all ranks, including ranks that cannot read it. The ranks that can read the checkpoint
// load it and send the state to the other ranks. trainer/life/state_source.cpp calls resume_state() with the checkpoint that
// choose_resume() has chosen.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/parallel/peers.hpp"
#include "trainer/resume/resume.hpp"
#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// The facts about the loaded checkpoint. They come from the lowest rank that can read the checkpoint, and are the same on all
// ranks.
struct Resumed {
  std::string path;          // path of the checkpoint on that rank's machine
  std::string differences;   // why the resumed run may not be bit-identical (rounding_differences()); may be empty
  std::int64_t planned = 0;  // total_steps of the run when the checkpoint was written
};

// Restores `state` and sets `origin` to kCheckpoint. All ranks must call this. Throws UsageError on a rank whose checkpoint is
// unreadable or does not match the config. The other ranks then get the exception for a lost worker. After an exception,
// is_whole(origin) is true only if this rank already has the complete state of the checkpoint.
Resumed resume_state(TrainingState& state, StateOrigin& origin, const ResumeFrom& from, const TrainConfig& config,
                     const RunLength& length, const Peers& peers);

}  // namespace ddprun::trainer
