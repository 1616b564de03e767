// How often a run has failed so far, from its metrics.jsonl: what "every": "auto" goes by. Read once, at the start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>

namespace ddprun::trainer {

struct FailureHistory {
  double seconds = 0;         // of training that the records show, without the time between processes
  std::int64_t failures = 0;  // restarts, and starts that found no orderly end before them
};

FailureHistory read_failure_history(std::istream& metrics);
// Nothing happened where there is no such file.
FailureHistory read_failure_history(const std::filesystem::path& metrics);

}  // namespace ddprun::trainer
