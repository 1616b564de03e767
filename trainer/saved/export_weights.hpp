// The weights of a checkpoint as a file of their own, for other programs: ddptrain --export-weights. The other direction is the
// config's model.init.
#pragma once

#include <filesystem>
#include <string>

namespace ddprun::trainer {

// Writes the weights and buffers of `from`, a checkpoint's folder or a run directory (its newest valid checkpoint), to a
// safetensors file, atomically. The checkpoint is verified first. Returns a line that says what was written. Throws UsageError.
std::string export_weights(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace ddprun::trainer
