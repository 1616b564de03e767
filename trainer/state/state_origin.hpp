// The origin of this rank's training state. When a process group forms, ranks with a complete state send it to the other
// ranks. If no rank has a complete state, the state comes from a checkpoint or from the seed. state_sharing.cpp and
// resumed_state.cpp set the origin whenever they change the tensors, so that the origin is correct even after an exception.
#pragma once

namespace ddprun::trainer {

enum class StateOrigin {
  kNothing,     // not usable: never initialized, received only in part, or interrupted during the update of the weights
  kUndecided,   // initialized from the seed; a checkpoint may still replace it
  kSeed,        // initialized from the seed, and training starts with it
  kCheckpoint,  // loaded from a checkpoint by this rank or by the rank that sent it
  kSurvivors,   // the state of a rank that survived when another rank was lost: this rank, or the rank that sent it
};

// Returns true if the state is complete after state.step finished steps, so that it may be sent to other ranks.
constexpr bool is_whole(StateOrigin origin) {
  switch (origin) {
    case StateOrigin::kNothing:
    case StateOrigin::kUndecided:
      return false;
    case StateOrigin::kSeed:
    case StateOrigin::kCheckpoint:
    case StateOrigin::kSurvivors:
      return true;
  }
  return false;
}

}  // namespace ddprun::trainer
