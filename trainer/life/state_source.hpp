// The training state of this worker, and its source in each group: surviving ranks, else a checkpoint, else the seed. Worker
// calls this class before and after each group. After agree() all ranks, including new ones, have the same state.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "trainer/life/process.hpp"
#include "trainer/life/run.hpp"
#include "trainer/state/program_builds.hpp"
#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

class StateSource {
 public:
  explicit StateSource(Process& process) : process_(process) {}

  // Makes the initial state from the seed, unless a usable state exists. A worker calls this before it waits for other ranks,
  // and a standby before it has a rank. The device must be set. Throws UsageError.
  void prepare();
  // Returns the step of the training state that this rank could send to other ranks. Returns nullopt if this rank has no such
  // state.
  std::optional<std::int64_t> held() const;

  // This call is collective. After this call the state is complete and the log is open. Throws UsageError and
  // BadCheckpointError if there is no state from which to continue. Throws CorruptStateError if this rank's state differs from
  // the state of the other survivors. Throws OtherBuildError if a rank that would receive the state runs another program.
  // Throws the process group's errors if another rank is lost.
  void agree(const Run& run);

  // Call this after another rank was lost, even in the middle of a step. Restores the state at the start of the step, or drops
  // the state.
  void leave();

  // Call this only after prepare().
  TrainingState& state() { return state_; }
  const TrainingState& state() const { return state_; }
  StateOrigin origin() const { return origin_; }

 private:
  void take_from_survivors(const Run& run, const std::vector<int>& holders, const std::vector<int>& without);
  void begin_or_resume(const Run& run);
  void make_state(const Description& samples);

  Process& process_;
  TrainingState state_;
  StateOrigin origin_ = StateOrigin::kNothing;
  std::string other_model_;                      // reason why a new run must not use model.init; empty if there is none
  bool made_before_ = false;                     // true after the module of a user's program was made twice and compared
  std::shared_future<StateDigest> own_program_;  // digest of this program; computed in a thread while the group starts
  ProgramBuilds builds_;
};

}  // namespace ddprun::trainer
