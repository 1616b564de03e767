// The weights of a checkpoint as a file of their own, for other programs: ddptrain --export-weights and --export-adapter. The
// other direction is the config's model.init.
#pragma once

#include <filesystem>
#include <string>

namespace ddprun::trainer {

struct ExportOptions {
  std::filesystem::path from;      // a checkpoint's folder, or a run directory or folder of checkpoints (its newest valid one)
  std::filesystem::path to;        // not in the checkpoint
  std::filesystem::path config{};  // a train.json; empty: that of the run that the checkpoint lies in. Updates are read with it
};

// Writes the weights and buffers to a safetensors file, atomically. Low-rank updates are added to the weights that they are of.
// The checkpoint is verified first. Returns a line that says what was written. Throws UsageError.
std::string export_weights(const ExportOptions& options);

// Writes its low-rank updates alone, as the peft package does: a folder with adapter_model.safetensors and
// adapter_config.json. Otherwise the same.
std::string export_adapter(const ExportOptions& options);

}  // namespace ddprun::trainer
