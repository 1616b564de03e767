#include "trainer/state/initial_weights.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "common/base/error.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/config/parse_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/models/foreign_config.hpp"
#include "trainer/models/low_rank.hpp"
#include "trainer/state/pretrained_files.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUpdatesAlone =
    " contains only low-rank updates, without the weights of their model: use the checkpoint that they come from, or "
    "export that checkpoint with --export-weights";

std::vector<NamedTensor> read(const fs::path& source) {
  std::error_code none;
  if (!fs::is_directory(source, none))
    return is_shard_index(source) ? read_pretrained(source) : read_safetensors(source).tensors;
  const bool checkpoint = fs::exists(source / kManifestFile, none);
  return !checkpoint && is_pretrained_folder(source) ? read_pretrained(source) : load_weights(source).model;
}

std::string advice_for(const fs::path& source) {
  std::error_code none;
  const fs::path newest = source / "checkpoints" / "latest";
  if (fs::exists(newest, none)) return source.string() + " is a run directory: use its newest checkpoint, " + newest.string();
  if (fs::exists(source / "pytorch_model.bin", none) || fs::exists(source / "pytorch_model.bin.index.json", none)) {
    return source.string() +
           " has its weights only in pytorch_model.bin, whose format can run code when it is read: load the model in Python, "
           "and save "
           "it with save_pretrained()";
  }
  return "Use a safetensors file, the folder of a Hugging Face model, or a checkpoint's folder such as "
         "RUN_DIR/checkpoints/latest";
}

struct ConfigOfRun {
  fs::path file;
  TrainConfig config;
};

// Returns `source` itself if it is a folder, or else the folder that contains the file.
fs::path folder_of(const fs::path& source) {
  std::error_code unknown;
  // Resolve links, because checkpoints/latest is a link to the newest checkpoint.
  const fs::path real = fs::canonical(source, unknown);
  return fs::is_directory(real, unknown) ? real : real.parent_path();
}

// Returns the config of the run that wrote `source`. `source` may be a checkpoint, a file in a checkpoint, or a file in the run
// directory. Returns nullopt if `source` is not in a run directory or if the config cannot be read.
std::optional<ConfigOfRun> config_of_run(const fs::path& source) {
  std::error_code unknown;
  const fs::path folder = folder_of(source);
  const bool is_run = fs::is_directory(folder / "checkpoints", unknown);
  const fs::path file = (is_run ? folder : folder.parent_path().parent_path()) / "config.json";
  if (!fs::is_regular_file(file, unknown)) return std::nullopt;
  try {
    return ConfigOfRun{.file = file, .config = load_config(file, {})};
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

// Reads `file` if it is a config.json of Hugging Face or timm. Otherwise returns null.
nlohmann::json foreign_config_in_file(const fs::path& file) {
  constexpr std::size_t kMax = std::size_t{1} << 20;
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return nullptr;
  const std::string text = read_bounded(file, kMax, "a model's config");
  try {
    nlohmann::json value = parse_json_within(text, {.depth = 16});
    return is_foreign_config(value) ? value : nlohmann::json();
  } catch (const UsageError&) {
    return nullptr;  // the file is not plain JSON, for example a ddprun config with comments
  }
}

// A config.json of Hugging Face or timm next to the weights, and its path. `config` is null if there is none. A file in a
// snapshot of the Hub is a link to a folder without config.json, so the folder that contains the link is searched first.
struct ForeignConfig {
  fs::path file;
  nlohmann::json config;
};
ForeignConfig foreign_config_next_to(const fs::path& source) {
  std::error_code unknown;
  ForeignConfig found;
  for (const fs::path& folder : {fs::is_directory(source, unknown) ? source : source.parent_path(), folder_of(source)}) {
    found = {.file = folder / "config.json", .config = foreign_config_in_file(folder / "config.json")};
    if (!found.config.is_null()) break;
  }
  return found;
}

void refuse(const std::string& differences, const fs::path& source, const fs::path& file) {
  if (differences.empty()) return;
  throw OtherModelError(
      source.string() + " has another model than this config, according to " + file.string() + ": " + differences +
      ". Set these keys to the values in the file; if the file does not describe these weights, move it away");
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace

std::string why_not_a_model(const fs::path& folder) {
  std::error_code none;
  if (fs::exists(folder / "adapter_config.json", none)) return folder.string() + kUpdatesAlone;
  if (fs::exists(folder / "train.graph", none)) {
    return folder.string() + " is an exported model, not a checkpoint: to start from its weights, set model.path to it";
  }
  return "";
}

std::vector<NamedTensor> initial_weights(const fs::path& source) {
  if (const std::string problem = why_not_a_model(source); !problem.empty()) throw UsageError(problem);
  std::vector<NamedTensor> tensors;
  try {
    tensors = read(source);
  } catch (const UsageError& problem) {
    throw UsageError(std::string(problem.what()) + ". " + advice_for(source));
  }
  const auto is_update = [](const NamedTensor& entry) { return is_lora_parameter(entry.name); };
  if (!tensors.empty() && std::ranges::all_of(tensors, is_update)) throw UsageError(source.string() + kUpdatesAlone);
  return tensors;
}

std::string compare_alpha(const std::vector<NamedTensor>& weights, const fs::path& source, const LoraConfig& config) {
  if (std::ranges::none_of(weights, [](const NamedTensor& entry) { return is_lora_parameter(entry.name); })) return "";
  const std::optional<ConfigOfRun> run = config_of_run(source);
  if (!run || run->config.model.lora.rank == 0) {
    return "the model.lora.alpha of its low-rank updates is unknown (no config.json), so this config's value is used: " +
           number_text(config.alpha);
  }
  const double before = run->config.model.lora.alpha;
  if (before == config.alpha) return "";
  throw UsageError("the low-rank updates of " + source.string() + " were trained with model.lora.alpha " + number_text(before) +
                   ", but this config has " + number_text(config.alpha) +
                   ", which changes their results. Set model.lora.alpha to " + number_text(before) +
                   ", or export that run with --export-weights and start from the exported file");
}

std::string compare_model(const fs::path& source, const TrainConfig& config) {
  if (const auto [file, theirs] = foreign_config_next_to(source); !theirs.is_null()) {
    refuse(foreign_contradictions(theirs, config), source, file);
    return "";
  }
  if (const auto run = config_of_run(source)) {
    if (run->config.worker.empty()) refuse(contradictions(run->config.model, config.model), source, run->file);
    return "";
  }
  const std::string keys = keys_without_a_shape(config.model);
  return keys.empty() ? "" : "there is no config.json next to the weights, so these keys could not be checked: " + keys;
}

std::string compare_held_out(const fs::path& source, const TrainConfig& config) {
  if (!config.data.validation.is_set()) return "";
  const auto run = config_of_run(source);
  if (!run) return "";
  const TrainConfig& before = run->config;
  if (before.data.type != config.data.type || before.data.dir != config.data.dir) return "";
  if (!before.data.validation.is_set()) {
    return "the run that produced these weights used the same data without data.validation, so it has trained on samples that "
           "are held out now: the validation metrics will be too optimistic";
  }
  const bool same_part = before.data.validation.fraction == config.data.validation.fraction &&
                         before.data.validation.samples == config.data.validation.samples &&
                         before.data.train_samples == config.data.train_samples;
  if (before.seed == config.seed && same_part) return "";
  return "the run that produced these weights held out other samples from the same data (" +
         (before.seed != config.seed ? "seed " + std::to_string(before.seed) + " then, " + std::to_string(config.seed) + " now"
                                     : std::string("data.validation or data.train_samples differ")) +
         "), so it has trained on samples that are held out now: the validation metrics will be too optimistic";
}

}  // namespace ddprun::trainer
