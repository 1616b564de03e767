#include "trainer/life/rank_records.hpp"

#include <string>

namespace ddprun::trainer {

Warn RankRecords::warn(channel::ErrorKind kind) {
  return [this, kind](const std::string& message) { log->warn(kind, message); };
}

void RankRecords::wait_for_save() const {
  if (checkpointing) checkpointing->wait_for_save();
}

void RankRecords::close() {
  wait_for_save();
  checkpointing.reset();
  log.reset();
}

}  // namespace ddprun::trainer
