#include "trainer/saved/export_weights.hpp"

#include <system_error>

#include "common/base/error.hpp"
#include "common/system/atomic_file.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/saved/saved_model.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::string export_weights(const fs::path& from, const fs::path& to) {
  std::error_code none;
  if (!fs::is_directory(from, none)) {
    throw UsageError("--export-weights: " + from.string() + " is not a folder; expected a checkpoint's, such as " +
                     "RUN_DIR/checkpoints/latest, or a run directory");
  }
  const fs::path checkpoint = is_run_directory(from) ? newest_valid_checkpoint(from) : from;
  const CheckpointState state = load_weights(checkpoint);
  const std::string bytes = encode_safetensors(
      state.model, {{"format", "pt"}, {"ddprun.step", std::to_string(state.step)}, {"ddprun.config", state.config_digest}});
  try {
    write_file_atomically(to, bytes);
  } catch (const std::system_error& error) {
    throw UsageError("--export-weights: " + std::string(error.what()));
  }
  return "weights of step " + std::to_string(state.step) + " (" + std::to_string(state.model.size()) + " tensors, " +
         std::to_string(bytes.size()) + " bytes) are in " + to.string();
}

}  // namespace ddprun::trainer
