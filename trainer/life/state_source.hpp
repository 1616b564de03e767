// The training state of this worker and its origin in each group: the survivors of a loss, else a checkpoint, else the seed.
// Worker calls it before and after each group. After agree() all ranks have the same state, new ranks too.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "trainer/life/membership.hpp"
#include "trainer/life/process.hpp"
#include "trainer/life/run.hpp"
#include "trainer/state/program_builds.hpp"
#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

class StateSource {
 public:
  explicit StateSource(Process& process) : process_(process) {}

  // Makes the initial state from the seed, unless a usable state exists. Called before the worker waits for peers, and on a
  // standby before it has a rank. Needs the device. Throws UsageError.
  void prepare();
  // Number of finished steps of the state that this rank could send to others; nullopt without a state.
  std::optional<std::int64_t> held() const;

  // Collective. Afterwards the state is whole and the log open. Throws UsageError and BadCheckpointError if there is no state
  // to continue from. Throws CorruptStateError if the survivors' state differs on this rank, and OtherBuildError if a rank that
  // would receive it runs another program. Also throws what the process group throws for a lost peer.
  void agree(Membership& membership, const Run& run);

  // Call after the loss of a peer, maybe in the middle of a step: returns to the beginning of the step, or drops the state.
  void leave();

  // Valid after prepare().
  TrainingState& state() { return state_; }
  const TrainingState& state() const { return state_; }
  StateOrigin origin() const { return origin_; }

 private:
  void take_from_survivors(Membership& membership, const Run& run, const std::vector<int>& holders,
                           const std::vector<int>& without);
  void begin_or_resume(Membership& membership, const Run& run);
  void make_state(const Description& samples);

  Process& process_;
  TrainingState state_;
  StateOrigin origin_ = StateOrigin::kNothing;
  std::string other_model_;                      // why model.init is refused for a new run; empty if accepted
  bool made_before_ = false;                     // the module of a user's program was made and compared with a second one
  std::shared_future<StateDigest> own_program_;  // computed while the group starts
  ProgramBuilds builds_;
};

}  // namespace ddprun::trainer
