#include "trainer/saved/export_weights.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "common/base/error.hpp"
#include "common/system/atomic_file.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/models/low_rank.hpp"
#include "trainer/saved/export_folder.hpp"
#include "trainer/saved/saved_model.hpp"
#include "trainer/saved/updates.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

struct Chosen {
  fs::path checkpoint;
  CheckpointState state;
};

Chosen choose(const std::string& option, const ExportOptions& options) {
  std::error_code none;
  if (!fs::is_directory(options.from, none)) {
    throw UsageError(option + ": " + options.from.string() + " is not a folder; expected a checkpoint's folder, such as " +
                     "RUN_DIR/checkpoints/latest, or a run directory");
  }
  const fs::path checkpoint = checkpoint_of_folder(options.from);
  for (fs::path above = fs::weakly_canonical(options.to, none); above != above.parent_path(); above = above.parent_path()) {
    if (!fs::equivalent(above, checkpoint, none)) continue;
    throw UsageError(option + ": " + options.to.string() +
                     " is inside the checkpoint to export and would damage it; choose a path outside of it");
  }
  return {.checkpoint = checkpoint, .state = load_weights(checkpoint)};
}

bool has_updates(const CheckpointState& state) {
  return std::ranges::any_of(state.model, [](const NamedTensor& entry) { return is_lora_parameter(entry.name); });
}

// Returns the config of the run. To merge low-rank updates, their scale and the model's type are needed from the config.
TrainConfig config_of(const std::string& option, const fs::path& checkpoint, const fs::path& given) {
  std::error_code none;
  if (given.empty() && !fs::exists(config_next_to(checkpoint), none)) {
    throw UsageError(
        option + ": " + checkpoint.string() +
        " has low-rank updates, but is not in a run directory with the config.json that contains their scale; append "
        "the train.json of the run to the command");
  }
  return find_saved_model(checkpoint, given, /*overrides=*/{}).config;
}

// Returns the config of the run if the weights must be exported as a Hugging Face folder, otherwise nullopt. A language model
// is exported in this form, unless the target's name ends in .safetensors or the target is an existing file.
std::optional<TrainConfig> config_for_folder(const std::string& option, const fs::path& checkpoint,
                                             const ExportOptions& options) {
  std::error_code none;
  if (options.to.extension() == ".safetensors" || fs::is_regular_file(options.to, none)) return std::nullopt;
  const bool folder = fs::is_directory(options.to, none) || !options.to.has_filename();
  bool known = !options.config.empty() || fs::exists(config_next_to(checkpoint), none);
  try {
    if (known) {
      TrainConfig config = find_saved_model(checkpoint, options.config, /*overrides=*/{}).config;
      if (config.model.is_language_model()) return config;
    }
  } catch (const UsageError&) {
    known = false;  // the config of a custom program, or a damaged config
  }
  if (!folder) return std::nullopt;
  throw UsageError(option + ": " + options.to.string() + " is a folder; " +
                   (known
                        ? "only gpt and llama models are written to a folder: expected a file name such as weights.safetensors"
                        : "the config.json for it is written from the config of the run, which was not found: append the "
                          "train.json of the run to the command"));
}

void write(const std::string& option, const fs::path& to, const std::string& bytes) {
  try {
    write_named_file(to, bytes);
  } catch (const std::system_error& error) {
    throw UsageError(option + ": " + std::string(error.what()));
  }
}

std::string size_text(const std::vector<NamedTensor>& tensors, const std::string& bytes) {
  return std::to_string(tensors.size()) + " tensors, " + std::to_string(bytes.size()) + " bytes";
}

std::map<std::string, std::string> facts_of(const CheckpointState& state) {
  return {{"format", "pt"}, {"ddprun.step", std::to_string(state.step)}, {"ddprun.config", state.config_digest}};
}

// Returns the safetensors file of a model. A tensor with several names is stored once, and its other names are stored in the
// metadata, as safetensors.torch.save_model() does.
std::string encoded_model(const CheckpointState& state) {
  std::map<std::string, std::string> facts = state.tied;
  facts.merge(facts_of(state));
  return encode_safetensors(state.model, facts);
}

}  // namespace

std::string export_weights(const ExportOptions& options) {
  const std::string option = "--export-weights";
  auto [checkpoint, state] = choose(option, options);
  std::optional<ModelConfig> config;
  if (has_updates(state)) config = config_of(option, checkpoint, options.config).model;
  const std::optional<TrainConfig> for_folder = config_for_folder(option, checkpoint, options);
  // A model that was exported from Python may have parameters whose names look like low-rank updates; these are not merged.
  const bool merges = config && config->type != ModelConfig::Type::kExported;
  if (merges) state.model = with_updates_added(std::move(state.model), *config);
  const std::string bytes = encoded_model(state);
  std::string files;
  if (for_folder) {
    files = " (" + export_folder(options.to, bytes, *for_folder, pretrained_source(*for_folder)) + ")";
  } else {
    write(option, options.to, bytes);
  }
  return "weights of step " + std::to_string(state.step) + " (" + size_text(state.model, bytes) +
         (state.tied.empty() ? "" : ", " + std::to_string(state.tied.size()) + " of them with several names") +
         (merges ? ", low-rank updates added" : "") + ") are in " + options.to.string() + files;
}

std::string export_adapter(const ExportOptions& options) {
  const auto [checkpoint, state] = choose("--export-adapter", options);
  const fs::path& to = options.to;
  if (!has_updates(state)) {
    throw UsageError(
        "--export-adapter: " + checkpoint.string() +
        " has no low-rank updates, because its run had no model.lora; use --export-weights to write all of its weights");
  }
  const Adapter adapter = adapter_of(state.model, config_of("--export-adapter", checkpoint, options.config).model);
  const std::string bytes = encode_safetensors(adapter.tensors, facts_of(state));
  std::error_code failed;
  fs::create_directories(to, failed);
  if (failed) throw UsageError("--export-adapter: " + to.string() + ": " + failed.message());
  write("--export-adapter", to / "adapter_model.safetensors", bytes);
  write("--export-adapter", to / "adapter_config.json", adapter.config.dump(2) + "\n");
  return "low-rank updates of step " + std::to_string(state.step) + " (" + size_text(adapter.tensors, bytes) + ") are in " +
         to.string();
}

}  // namespace ddprun::trainer
