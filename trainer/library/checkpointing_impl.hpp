// Behind ddprun::Checkpointing, and what ddprun::Job wants to hear of it.
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
  std::function<void(const channel::CheckpointPublished&)> published{};  // on any thread
  std::vector<trainer::Candidate> bad{};                                 // that load() has passed over
  std::optional<trainer::WriterClaim> claim{};
  std::int64_t newest = -1;  // the step that was saved or loaded last
  trainer::HostCopy host_copy{};
  trainer::BackgroundTask task{};  // last: its end waits for what uses the others

  bool load(trainer::TrainingState& state);
  // Begins a save, after the one before: `in_background` from a copy. Else the state is not to change until it has ended.
  void begin(const trainer::TrainingState& state, bool in_background);
  // Throws what a save that has ended threw.
  void rethrow_finished();
  // The same, but a disk's trouble is a warning.
  void report_finished();
  bool due(const trainer::TrainingState& state) const;
  void save_if_due(const trainer::TrainingState& state);
  // Renames the bad ones out of the way, by the rank that writes.
  void set_bad_aside();
  // Another process has written here since, or may have.
  void give_up_claim() { claim.reset(); }

 private:
  void warn_of(const std::system_error& error) const;
  void write(const trainer::CheckpointState& state, double pause_s);
};

}  // namespace ddprun
