// The weights of a checkpoint as a file of their own, for other programs: ddptrain --export-weights and --export-adapter. The
// other direction is the config's model.init.
#pragma once

#include <filesystem>
#include <string>

namespace ddprun::trainer {

// Writes the weights and buffers of `from`, a checkpoint's folder or a run directory (its newest valid checkpoint), to a
// safetensors file, atomically. Low-rank updates are added to the weights that they are of. The checkpoint is verified first.
// Returns a line that says what was written. Throws UsageError.
std::string export_weights(const std::filesystem::path& from, const std::filesystem::path& to);

// Writes its low-rank updates alone, as the peft package does: a folder with adapter_model.safetensors and
// adapter_config.json. Otherwise the same.
std::string export_adapter(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace ddprun::trainer
