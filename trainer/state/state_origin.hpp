// The origin of this rank's training state. When a group begins, the ranks with a whole state send it to the others. If no rank
// has one, the state comes from a checkpoint or from the seed. state_sharing and resumed_state change it together with the
// tensors, so that it is also correct after an exception.
#pragma once

namespace ddprun::trainer {

enum class StateOrigin {
  kNothing,     // not usable: never made, partly received, or its update was interrupted
  kUntouched,   // made from the seed; the group has not decided yet how the run begins
  kSeed,        // made from the seed, and the run begins with it
  kCheckpoint,  // loaded by this rank, or received from a rank that has loaded it
  kSurvivors,   // from a rank that survived a lost peer: this one, or the sender of the state
};

// True if it is the state after state.step steps, so that other ranks may receive it.
constexpr bool is_whole(StateOrigin origin) {
  switch (origin) {
    case StateOrigin::kNothing:
    case StateOrigin::kUntouched:
      return false;
    case StateOrigin::kSeed:
    case StateOrigin::kCheckpoint:
    case StateOrigin::kSurvivors:
      return true;
  }
  return false;
}

}  // namespace ddprun::trainer
