// The run directory: where its files are, who may write it, and whether this config may continue it. The agent owns it for a
// job it launches; rank 0 of ddptrain does under torchrun or alone. Nothing here deletes what a run produced.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun {

// Paths inside a run directory. Pure.
struct RunLayout {
  std::filesystem::path root;
  std::filesystem::path config() const { return root / "config.json"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::filesystem::path tensorboard() const { return root / "tensorboard"; }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path ledger() const { return root / "ledger"; }
  std::filesystem::path report() const { return root / "report.json"; }
  std::filesystem::path run() const { return root / "run.json"; }
  std::filesystem::path lock() const { return root / "lock"; }
  std::filesystem::path checkpoint(std::int64_t step) const;  // checkpoints/step-000000400
};

// What opening a run directory found.
struct RunState {
  RunLayout layout;
  int lock_fd = -1;      // flock held; keep it open (guardian included) for as long as anything may write. CLOEXEC
  bool resumed = false;  // an earlier invocation's config.json was there
  std::optional<std::int64_t> latest_step;  // of the newest checkpoint, unverified
  bool finished = false;                    // the latest checkpoint's manifest says this config's last step is done
  std::string renamed_to;                   // --fresh: where the old directory went; empty otherwise
  std::string notes;                        // harmless differences, one line each, for the console
};

enum class FreshStart { kNo, kRename };

// Makes or opens `root`, takes its lock, compares configs and writes config.json (atomically). Throws UsageError when it can't
// be made or written, when a live run holds it (names host and pid), when the config differs in a key that may not change
// (lists them with both values and says --fresh), when it holds something that is not a run directory, or when
// checkpoint.local_dir is inside it. The config of a start in which nothing was trained is replaced, whatever it says.
RunState open_run_directory(const std::filesystem::path& root, const TrainConfig& config, FreshStart fresh);

// Asks the same without making, taking or writing anything, for --dry-run. Throws as open_run_directory() would, but for what
// only the attempt can tell: whether a folder can be made and written.
RunState examine_run_directory(const std::filesystem::path& root, const TrainConfig& config, FreshStart fresh);

}  // namespace ddprun
