// The ledger records which samples each rank used in which step, one JSON object per line in ledger/rank-00000.jsonl. It proves
// that a run lost no sample of an epoch and used none twice, in spite of failures. Off unless data.ledger is true.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace ddprun::trainer {

// Removes the lines of all ranks past `resume_step` finished steps, and incomplete last lines. Called by one rank of each node
// before any rank writes. Works on a full disk. A file that cannot be cut is reported to `on_trouble`.
void cut_ledger(const std::filesystem::path& folder, std::int64_t resume_step,
                const std::function<void(const std::string&)>& on_trouble);

// Newest step in this rank's file, 0 if the file is empty, nullopt if there is no file.
std::optional<std::int64_t> newest_in_ledger(const std::filesystem::path& folder, int rank);

class Ledger {
 public:
  // Opens rank-XXXXX.jsonl of the folder for appending. The first failure to open or write is reported to `on_trouble`. It ends
  // the ledger and not the training.
  Ledger(const std::filesystem::path& folder, int rank, std::function<void(const std::string&)> on_trouble);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // `step`: number of finished steps, including this one. Uses a single write, so that a crash leaves complete lines.
  void write(std::int64_t step, std::int64_t epoch, std::int64_t position, std::span<const std::int64_t> samples);

 private:
  int fd_ = -1;
  std::string file_;
  std::string line_;
  std::function<void(const std::string&)> on_trouble_;
};

}  // namespace ddprun::trainer
