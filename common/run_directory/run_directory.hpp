// Opens a run directory: takes its lock, and checks whether a config may continue the run. Also defines the paths of its
// files. In a job of ddprun, the agent opens the directory. If ddptrain runs under torchrun or alone, its rank 0 opens the
// directory. These functions never delete results of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun {

// The paths of the files inside a run directory. The code is pure: no I/O, no clock.
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
  std::filesystem::path worker() const { return root / "worker.json"; }    // the description of a custom worker program
  std::filesystem::path columns() const { return root / "columns.json"; }  // the column plan of a table (trainer/tables)
  std::filesystem::path lock() const { return root / "lock"; }
  std::filesystem::path checkpoint(std::int64_t step) const;  // for step 400: checkpoints/step-000000400
};

// The result of open_run_directory().
struct RunState {
  RunLayout layout;
  // descriptor of the lock file (flock, CLOEXEC); the agent or guardian keeps it open as long as a worker may write
  int lock_fd = -1;
  bool resumed = false;                     // true if the directory has a config.json from an earlier invocation of ddprun
  std::optional<std::int64_t> latest_step;  // step of the newest checkpoint whose files have the right sizes
  bool finished = false;   // true if the newest checkpoint is at the last step of this config, or early stopping ended the run
  std::string renamed_to;  // after --fresh: the new name of the old directory; empty if it was not renamed
  // Notes for the console, one line each. They list the changed keys. If the run is finished, they also list damaged
  // checkpoints that are newer than the last valid checkpoint.
  std::string notes;
};

enum class FreshStart { kNo, kRename };

// Creates or opens `root`, takes its lock, compares the configs, and writes config.json atomically. If no step was trained with
// the old config, it is replaced without a comparison. Throws UsageError in these cases:
// - The directory can't be created or written.
// - Another process holds its lock. The message contains its host and pid.
// - A key has changed, but it must not change. The message lists all keys of this kind with both values, and suggests --fresh.
// - The directory is not a run directory, or checkpoint.local_dir is inside it.
RunState open_run_directory(const std::filesystem::path& root, const TrainConfig& config, FreshStart fresh);

// Makes the checks of open_run_directory() for --dry-run, without creating, locking or writing files. Throws the same errors,
// with one exception: it does not detect a folder that can't be created or written.
RunState examine_run_directory(const std::filesystem::path& root, const TrainConfig& config, FreshStart fresh);

}  // namespace ddprun
