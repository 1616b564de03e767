// Number of failures of a run so far, from its metrics.jsonl. "every": "auto" derives the checkpoint interval from it. Read
// once, at the start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>

namespace ddprun::trainer {

struct FailureHistory {
  double seconds = 0;         // training time in the records, without the time between processes
  std::int64_t failures = 0;  // restarts, and starts after a process that did not end in order
};

FailureHistory read_failure_history(std::istream& metrics);
// Returns an empty history if there is no such file.
FailureHistory read_failure_history(const std::filesystem::path& metrics);

}  // namespace ddprun::trainer
