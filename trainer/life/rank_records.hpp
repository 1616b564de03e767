// What this worker writes of the run in its role as this rank: the log, and on some ranks checkpoints. Both outlive a group,
// since a save may be in progress when a peer is lost. They do not outlive the rank. Owned by Membership.
#pragma once

#include <memory>
#include <optional>

#include "common/channel/message.hpp"
#include "trainer/loop/checkpointing.hpp"
#include "trainer/loop/run_log.hpp"
#include "trainer/resume/resume.hpp"

namespace ddprun::trainer {

struct RankRecords {
  std::optional<RunLog> log;                     // opened in the rank's first group
  std::unique_ptr<Checkpointing> checkpointing;  // on rank 0, and on ranks that write their node's copy

  // Returns a function that logs warnings of one kind while training continues.
  Warn warn(channel::ErrorKind kind);
  // Waits for a save in progress, for 30 s at most. Reports no error.
  void settle() const;
  // Call when another worker takes over the rank. Calls settle() first.
  void close();
};

}  // namespace ddprun::trainer
