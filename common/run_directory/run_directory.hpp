// The run directory: the place of its files, the right to write it, and the check whether a config may continue it. In a
// launched job the agent owns it; under torchrun or alone, rank 0 of ddptrain does. Nothing here deletes results of a run.
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
  std::filesystem::path worker() const { return root / "worker.json"; }  // of a custom worker program
  std::filesystem::path lock() const { return root / "lock"; }
  std::filesystem::path checkpoint(std::int64_t step) const;  // checkpoints/step-000000400
};

// The result of open_run_directory().
struct RunState {
  RunLayout layout;
  int lock_fd = -1;  // the locked descriptor (flock, CLOEXEC): agent or guardian keeps it open as long as a process may write
  bool resumed = false;                     // there was a config.json of an earlier invocation
  std::optional<std::int64_t> latest_step;  // step of the newest checkpoint whose files have the right sizes; not verified
  bool finished = false;                    // according to its manifest, this config's last step is done
  std::string renamed_to;                   // after --fresh: the old directory's new name; otherwise empty
  std::string notes;  // for the console, one line each: harmless differences between the configs; if an older checkpoint shows
                      // that the run is finished, the damage of the newest
};

enum class FreshStart { kNo, kRename };

// Creates or opens `root`, takes its lock, compares configs and writes config.json (atomically). Throws UsageError in these
// cases: the directory can't be created or written; a live run holds it (reports host and pid); a key differs that may not
// change (lists such keys with both values and suggests --fresh); it is not a run directory; or checkpoint.local_dir is inside
// it. A config under which nothing was trained is replaced without a comparison.
RunState open_run_directory(const std::filesystem::path& root, const TrainConfig& config, FreshStart fresh);

// Checks the same without creating, locking or writing anything, for --dry-run. Throws like open_run_directory(), except for
// errors that only an attempt shows: whether a folder can be created and written.
RunState examine_run_directory(const std::filesystem::path& root, const TrainConfig& config, FreshStart fresh);

}  // namespace ddprun
