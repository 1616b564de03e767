// The files that a worker writes for its rank: the log, and on some ranks checkpoints. They stay open when the group ends,
// since a save may be in progress when another rank is lost. They are closed when the worker gets another rank. Process owns
// them.
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
  std::unique_ptr<Checkpointing> checkpointing;  // set on rank 0, and on ranks that write a copy to their node's disk

  // Returns a function that logs warnings of one kind while training continues.
  Warn warn(channel::ErrorKind kind);
  // Waits for a save in progress, for at most 30 s. Does not report errors.
  void wait_for_save() const;
  // Call this when this worker gets a different rank. First calls wait_for_save().
  void close();
};

}  // namespace ddprun::trainer
