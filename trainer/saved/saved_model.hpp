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

// `from`: a run directory or a folder of checkpoints (its newest valid one), a checkpoint's folder, or a safetensors file.
// `config`: its train.json; empty: the config.json of the run that `from` is in. `overrides` as those of ddptrain. `own`: the
// keys of a program with a task of its own; nothing: this is ddptrain, which has no model of such a program. Reads no weights.
// Throws UsageError, also for folders that are none of these.
SavedModel find_saved_model(const std::filesystem::path& from, const std::filesystem::path& config,
                            const std::vector<std::string>& overrides, const std::optional<TaskConfig>& own = std::nullopt);

// The checkpoint that a folder stands for: itself; of a run directory or of a folder of checkpoints, such as a node's copies,
// the newest whose files are what its manifest says. Where a newer one is bad, a line on stderr names both. Throws UsageError.
std::filesystem::path checkpoint_of_folder(const std::filesystem::path& from);

// The config of the run that a checkpoint lies in; it need not be there.
std::filesystem::path config_beside(const std::filesystem::path& checkpoint);

}  // namespace ddprun::trainer
