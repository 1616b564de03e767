// The private implementation of ddprun::Checkpointing, with the callbacks that ddprun::Job needs.
#pragma once

#include <ddprun/checkpointing.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "common/channel/message.hpp"
#include "trainer/checkpoint/background_task.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/host_copy.hpp"
#include "trainer/checkpoint/writer_claim.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun {

struct Checkpointing::Impl {
  std::filesystem::path folder;
  CheckpointOptions options;
  std::function<void(const std::string& message)> warn;
  std::function<void(const channel::CheckpointPublished&)> published{};  // called on any thread after a checkpoint is published
  std::vector<trainer::Candidate> bad{};                                 // invalid checkpoints that the last load() skipped
  std::optional<trainer::WriterClaim> claim{};
  std::int64_t newest = -1;  // step of the last save or load; -1 if there was none
  trainer::HostCopy host_copy{};
  trainer::BackgroundTask task{};  // must be the last member: its destructor waits for the task, which uses the other members

  bool load(trainer::TrainingState& state);
  // Waits for the previous save, then starts the next one. If `in_background` is true, a copy of the state is saved. Otherwise
  // the state must not change until the save has ended.
  void begin(const trainer::TrainingState& state, bool in_background);
  // Rethrows the error of a finished save, if it failed.
  void rethrow_finished();
  // Works like rethrow_finished(), but a disk error becomes a warning.
  void report_finished();
  bool due(const trainer::TrainingState& state) const;
  void save_if_due(const trainer::TrainingState& state);
  // Renames the checkpoints in `bad`. Only the rank that writes checkpoints calls this function.
  void set_bad_aside();
  // Drops this process's claim to write to the folder. Call this if another process may have written to the folder after the
  // claim was made.
  void release_claim() { claim.reset(); }

 private:
  void warn_of(const std::system_error& error) const;
  void write(const trainer::CheckpointState& state, double pause_s);
};

}  // namespace ddprun
