// The run directory: where its files are, who may write it, and whether a config may continue it. In a launched job the agent
// owns it; under torchrun or alone, rank 0 of ddptrain does. Nothing here deletes what a run has produced.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun {

// The paths inside a run directory. Pure.
struct RunLayout {
  std::filesystem::path root;
  std::filesystem::path config() const { return root / "config.json"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::filesystem::path tensorboard() const { return root / "tensorboard"; }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path ledger() const { return root / "ledger"; }
  std::filesystem::path traces() const { return root / "traces"; }
  std::filesystem::path report() const { return root / "report.json"; }
  std::filesystem::path run() const { return root / "run.json"; }
  std::filesystem::path worker() const { return root / "worker.json"; }  // of a program of the user's own
  std::filesystem::path lock() const { return root / "lock"; }
  std::filesystem::path checkpoint(std::int64_t step) const;  // checkpoints/step-000000400
};

// What open_run_directory() found.
struct RunState {
  RunLayout layout;
  int lock_fd = -1;      // the locked descriptor (flock, CLOEXEC): agent or guardian keeps it open while anything may write
  bool resumed = false;  // the config.json of an earlier invocation was there
  std::optional<std::int64_t> latest_step;  // of the newest checkpoint whose files are there in their lengths; not verified
  bool finished = false;                    // its manifest says that this config's last step is done
  std::string renamed_to;                   // after --fresh: the old directory's new name; otherwise empty
  std::string notes;  // for the console, one line each: harmless differences between the configs; where it is finished by an
                      // older checkpoint, what is wrong with the newest
};

enum class FreshStart { kNo, kRename };

// Makes or opens `root`, takes its lock, compares configs and writes config.json (atomically). Throws UsageError when the
// directory can't be made or written; when a live run holds it (names host and pid); when a key differs that may not change
// (lists such keys with both values and suggests --fresh); when it is no run directory; or when checkpoint.local_dir is inside
// it. A config under which nothing was trained is replaced, whatever it says.
RunState open_run_directory(const std::filesystem::path& root, const TrainConfig& config, FreshStart fresh);

// Checks the same without making, locking or writing anything, for --dry-run. Throws like open_run_directory(), except for what
// only an attempt can tell: whether a folder can be made and written.
RunState examine_run_directory(const std::filesystem::path& root, const TrainConfig& config, FreshStart fresh);

}  // namespace ddprun
