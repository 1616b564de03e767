// Implementation behind ddprun::Checkpointing, and the events that ddprun::Job needs from it.
#pragma once

#include <ddprun/checkpointing.hpp>

#include <chrono>
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
  std::function<void(const channel::CheckpointPublished&)> published{};  // called on any thread
  std::vector<trainer::Candidate> bad{};                                 // checkpoints that load() has skipped
  std::optional<trainer::WriterClaim> claim{};
  std::int64_t newest = -1;  // step of the last save or load; -1: none
  trainer::HostCopy host_copy{};
  trainer::BackgroundTask task{};  // last member: its destructor waits for the task, which uses the others

  bool load(trainer::TrainingState& state);
  // Waits for the previous save, then begins one. `in_background` saves a copy. Without it the state must not change until the
  // save has ended.
  void begin(const trainer::TrainingState& state, bool in_background);
  // Rethrows the error of a finished save.
  void rethrow_finished();
  // The same, but a disk error becomes a warning.
  void report_finished();
  bool due(const trainer::TrainingState& state) const;
  void save_if_due(const trainer::TrainingState& state);
  // Renames the bad checkpoints. Called on the rank that writes.
  void set_bad_aside();
  // Call if another process has written to this folder, or may have.
  void give_up_claim() { claim.reset(); }

 private:
  void warn_of(const std::system_error& error) const;
  void write(const trainer::CheckpointState& state, double pause_s);
};

}  // namespace ddprun
