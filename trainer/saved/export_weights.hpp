// Exports the weights of a checkpoint to a separate file for other programs: ddptrain --export-weights and --export-adapter.
// The config's model.init imports such a file.
#pragma once

#include <filesystem>
#include <string>

namespace ddprun::trainer {

struct ExportOptions {
  std::filesystem::path from;      // a checkpoint's folder, or a run directory or folder of checkpoints (uses its newest valid
                                   // one)
  std::filesystem::path to;        // must not be in the checkpoint
  std::filesystem::path config{};  // a train.json; empty: that of the checkpoint's run. Low-rank updates need it
};

// Writes the weights and buffers to a safetensors file, atomically. Low-rank updates are merged into their weights. The
// checkpoint is verified first. Returns a line for the user about the file. Throws UsageError.
std::string export_weights(const ExportOptions& options);

// Writes only the low-rank updates, in the format of the peft package: a folder with adapter_model.safetensors and
// adapter_config.json. Otherwise the same.
std::string export_adapter(const ExportOptions& options);

}  // namespace ddprun::trainer
