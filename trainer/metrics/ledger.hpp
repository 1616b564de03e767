// The ledger lists the samples that each rank used in each step. Each rank writes one JSON object per step to its own file,
// ledger/rank-00000.jsonl for rank 0. With the ledger, a user can check that a run used each sample of an epoch exactly once,
// even after failures. It is only written if data.ledger is true.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "common/system/descriptor.hpp"

namespace ddprun::trainer {

// Removes the lines of steps after `resume_step` from the files of all ranks, since the run will repeat these steps. Also
// removes incomplete last lines. One rank of each node calls this function before any rank writes. If the removed lines are at
// the end of a file, the removal needs no disk space. A file that cannot be changed is reported to `on_trouble`.
void cut_ledger(const std::filesystem::path& folder, std::int64_t resume_step,
                const std::function<void(const std::string&)>& on_trouble);

// Returns the newest step in the file of `rank`. Returns 0 if the last line has no step or is missing, and nullopt if there is
// no file.
std::optional<std::int64_t> newest_in_ledger(const std::filesystem::path& folder, int rank);

class Ledger {
 public:
  // Opens the file of this rank for appending. The first failure to open the file or to write is reported to `on_trouble`.
  // After a failure, this rank writes no more lines, and training continues.
  Ledger(const std::filesystem::path& folder, int rank, std::function<void(const std::string&)> on_trouble);

  // Appends the line of a finished step. `step` is the number of finished steps, including this one. `position` is the number
  // of samples before the global batch in the epoch. The line is written with a single write(), so a crash leaves no partial
  // line.
  void write(std::int64_t step, std::int64_t epoch, std::int64_t position, std::span<const std::int64_t> samples);

 private:
  Descriptor opened_;
  std::string file_;
  std::string line_;
  std::function<void(const std::string&)> on_trouble_;
};

}  // namespace ddprun::trainer
