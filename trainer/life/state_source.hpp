// The training state of this worker and where it comes from in each group: from the survivors of a loss, else from a
// checkpoint, else from the seed. Worker asks before and after each group; a rank that was not there and one that was come out
// of agree() with the same state.
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

  // Before peers are waited for, and as a standby before there is a rank: makes a state as the seed does unless there is one
  // that can be used. Needs the device. Throws UsageError.
  void prepare();
  // Finished steps of the state that others may be given; nothing while there is none.
  std::optional<std::int64_t> held() const;

  // Collective. Afterwards the state is whole and the log open. Throws UsageError and BadCheckpointError when there is no state
  // to go on from, CorruptStateError when that of survivors differs here, OtherBuildError when a rank that would be sent it
  // runs another program, and what the process group throws for a lost peer.
  void agree(Membership& membership, const Run& run);

  // A peer was lost, maybe in the middle of a step: goes back to its beginning, or holds nothing any more.
  void leave();

  // After prepare().
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
  std::string other_model_;                      // why model.init is refused for a new run; empty: it is not
  bool made_before_ = false;                     // a program's module was made, and compared with a second one
  std::shared_future<StateDigest> own_program_;  // read beside the group's start
  ProgramBuilds builds_;
};

}  // namespace ddprun::trainer
