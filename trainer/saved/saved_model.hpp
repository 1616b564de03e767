// Finds and loads a saved model: the weights, and the config that defines the model. `ddptrain generate`, `eval`, `predict`
// and --export-weights use this code.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

struct SavedModel {
  TrainConfig config;
  std::filesystem::path weights;  // a safetensors file or a checkpoint's folder
};

// Finds the file of the weights and loads the config. Does not read the weights. Throws UsageError.
//
//  - `from`: a run directory or a folder of checkpoints (the newest valid checkpoint is used), the folder of one checkpoint,
//    the folder of a Hugging Face model, or a safetensors file.
//  - `config`: the train.json of the model; if empty, the config.json of the run that contains `from`, or of the Hugging Face
//    model.
//  - `overrides`: config keys as on the command line of ddptrain.
//  - `own`: the config keys of a custom program with its own task. nullopt for ddptrain itself; the function then throws if the
//    model belongs to a custom program.
SavedModel find_saved_model(const std::filesystem::path& from, const std::filesystem::path& config,
                            const std::vector<std::string>& overrides, const std::optional<TaskConfig>& own = std::nullopt);

struct LoadedModel {
  c10::Device device;
  std::shared_ptr<torch::nn::Module> module;  // in evaluation mode
};

// Creates the task's module on the device that the config selects, and loads the saved weights. Throws UsageError.
LoadedModel load_model(const SavedModel& saved, const Task& task, const Description& samples);

// Returns the folder of a checkpoint: `from` itself if it is a checkpoint. If `from` is a run directory or a folder of
// checkpoints, returns the newest valid checkpoint in it. If a newer checkpoint is damaged, prints a warning to stderr that
// names both. Throws UsageError.
std::filesystem::path checkpoint_of_folder(const std::filesystem::path& from);

// Returns the path of the config of the run that contains the checkpoint. The file may not exist.
std::filesystem::path config_next_to(const std::filesystem::path& checkpoint);

}  // namespace ddprun::trainer
