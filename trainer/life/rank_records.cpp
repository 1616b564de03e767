// Implementation of rank_records.hpp.
#include "trainer/life/rank_records.hpp"

#include <string>

namespace ddprun::trainer {

Warn RankRecords::warn(channel::ErrorKind kind) {
  return [this, kind](const std::string& message) { log->warn(kind, message); };
}

void RankRecords::settle() const {
  if (checkpointing) checkpointing->settle();
}

void RankRecords::close() {
  settle();
  checkpointing.reset();
  log.reset();
}

}  // namespace ddprun::trainer
