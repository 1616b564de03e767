// Exports the weights of a checkpoint to a separate file for other programs: ddptrain --export-weights and --export-adapter. A
// run can also start from such a file, with model.init in its config.
#pragma once

#include <filesystem>
#include <string>

namespace ddprun::trainer {

struct ExportOptions {
  // A checkpoint, a run directory or a folder of checkpoints. The newest valid checkpoint of a directory is used.
  std::filesystem::path from;
  std::filesystem::path to;  // target path; must not be in the folder of the checkpoint
  // The train.json, which low-rank updates need. If the path is empty, the train.json of the run that wrote the checkpoint is
  // used.
  std::filesystem::path config{};
};

// Writes the weights and buffers to a safetensors file, atomically. Low-rank updates are added to their weights. A language
// model is written as a Hugging Face folder (export_folder.hpp), unless `to` ends in .safetensors. Returns a line for the user.
// Throws UsageError if the checkpoint is damaged or the export fails for another reason.
std::string export_weights(const ExportOptions& options);

// Writes only the low-rank updates, in the format of the peft package: a folder with adapter_model.safetensors and
// adapter_config.json. Returns a line for the user. Throws UsageError.
std::string export_adapter(const ExportOptions& options);

}  // namespace ddprun::trainer
