// Finds a saved model: its weights, and the config that defines the model. Used by `ddptrain generate`, `eval`, `predict` and
// --export-weights.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

struct SavedModel {
  TrainConfig config;
  std::filesystem::path weights;  // a safetensors file or a checkpoint's folder
};

// `from`: a run directory or a folder of checkpoints (uses its newest valid one), a checkpoint's folder, or a safetensors file.
// `config`: its train.json; empty: the config.json of the run that contains `from`. `overrides`: as on ddptrain's command line.
// `own`: the keys of a program with its own task; nullopt for ddptrain, which has no model of such a program. Reads no weights.
// Throws UsageError, also for other folders.
SavedModel find_saved_model(const std::filesystem::path& from, const std::filesystem::path& config,
                            const std::vector<std::string>& overrides, const std::optional<TaskConfig>& own = std::nullopt);

// The checkpoint that a folder stands for. For a checkpoint, that is the folder itself. For a run directory or a folder of
// checkpoints, such as a node's copies, it is the newest one whose files match its manifest. If a newer one is bad, a line on
// stderr names both. Throws UsageError.
std::filesystem::path checkpoint_of_folder(const std::filesystem::path& from);

// Path of the config of the run that contains the checkpoint; the file need not exist.
std::filesystem::path config_beside(const std::filesystem::path& checkpoint);

}  // namespace ddprun::trainer
