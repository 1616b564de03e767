// What the training state of this rank is, and where it came from. When a group begins, ranks go by it: who holds a whole state
// gives it to the others, and where nobody does, the state comes from a checkpoint or begins as the seed makes it.
// state_sharing and resumed_state change it together with the tensors, so that an exception leaves the truth behind.
#pragma once

namespace ddprun::trainer {

enum class StateOrigin {
  kNothing,     // none that anybody may go on from: never made, half received, or its update was cut off
  kUntouched,   // as the seed makes it, before its group has said what the run goes on from
  kSeed,        // the same, and the run begins with it
  kCheckpoint,  // loaded by this rank, or sent by one that has loaded it
  kSurvivors,   // of a loss: of ranks that outlived it, whether this is one of them or was sent it
};

// True when it is the state after state.step steps, which others may be given.
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
