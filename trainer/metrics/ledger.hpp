// The ledger: which samples each rank used in which step, one JSON object a line in ledger/rank-00000.jsonl. With it a run
// proves that no sample of an epoch was lost or used twice, whatever happened to it. Off unless data.ledger is true.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace ddprun::trainer {

// Drops what all ranks wrote past `resume_step` finished steps, and torn last lines. Called by one rank of each node before
// anybody writes. Works on a full disk; a file that can't be cut is told to `on_trouble`.
void cut_ledger(const std::filesystem::path& folder, std::int64_t resume_step,
                const std::function<void(const std::string&)>& on_trouble);

// The newest step in this rank's file, 0 before the first; nothing where there is no file.
std::optional<std::int64_t> newest_in_ledger(const std::filesystem::path& folder, int rank);

class Ledger {
 public:
  // Opens rank-XXXXX.jsonl of the folder for appending. When it can't be opened or written, that is told once to `on_trouble`
  // and ends the ledger, not the training.
  Ledger(const std::filesystem::path& folder, int rank, std::function<void(const std::string&)> on_trouble);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // `step` counts finished steps, this one included. One write, so that a crash leaves whole lines.
  void write(std::int64_t step, std::int64_t epoch, std::int64_t position, std::span<const std::int64_t> samples);

 private:
  int fd_ = -1;
  std::string file_;
  std::string line_;
  std::function<void(const std::string&)> on_trouble_;
};

}  // namespace ddprun::trainer
