// What is left of a run, found again: its weights, and the config that says what model they are of. `ddptrain generate`,
// `eval`, `predict` and --export-weights begin with it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

struct SavedModel {
  TrainConfig config;
  std::filesystem::path weights;  // a safetensors file, or a checkpoint's folder
};

// `from`: a run directory (its newest valid checkpoint), a checkpoint's folder, or a safetensors file. `config`: its
// train.json; empty: the config.json of the run that `from` is in. `overrides` as those of ddptrain. `own`: the keys of a
// program with a task of its own; nothing: this is ddptrain, which has no model of such a program. Reads no weights. Throws
// UsageError, also for folders that are none of these.
SavedModel find_saved_model(const std::filesystem::path& from, const std::filesystem::path& config,
                            const std::vector<std::string>& overrides, const std::optional<TaskConfig>& own = std::nullopt);

// The newest checkpoint of a run directory whose files are what its manifest says. Throws UsageError.
std::filesystem::path newest_valid_checkpoint(const std::filesystem::path& run_dir);

// Whether it is a run directory, by the folder of its checkpoints.
bool is_run_directory(const std::filesystem::path& folder);

}  // namespace ddprun::trainer
