// Reads the number of failures of a run so far from its metrics.jsonl. With "every": "auto", the checkpoint interval is derived
// from this number. The file is read once, at the start of a process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>

namespace ddprun::trainer {

struct FailureHistory {
  double seconds = 0;  // training time so far; excludes the time between the end of a process and its restart
  // number of restarts and regroups, plus the number of starts after a process that did not exit normally
  std::int64_t failures = 0;
};

FailureHistory read_failure_history(std::istream& metrics);
// Returns an empty history if the file does not exist.
FailureHistory read_failure_history(const std::filesystem::path& metrics);

}  // namespace ddprun::trainer
