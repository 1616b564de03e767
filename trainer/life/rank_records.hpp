// What this worker writes of the run because of the rank it has: the log, and on some ranks checkpoints. Both outlive a group,
// since a save may be on its way when a peer is lost, but not the rank. Membership has one; whoever needs the log is given it.
#pragma once

#include <memory>
#include <optional>

#include "common/channel/message.hpp"
#include "trainer/loop/checkpointing.hpp"
#include "trainer/loop/run_log.hpp"
#include "trainer/resume/resume.hpp"

namespace ddprun::trainer {

struct RankRecords {
  std::optional<RunLog> log;                     // from the rank's first group on
  std::unique_ptr<Checkpointing> checkpointing;  // rank 0's, and who writes a copy for its node

  // For what warns of one kind of trouble through the log, while training goes on.
  Warn warn(channel::ErrorKind kind);
  // Waits for a save in flight, for 30 s at most, and says nothing of it.
  void settle() const;
  // The rank is another's from here on. Settles first.
  void close();
};

}  // namespace ddprun::trainer
