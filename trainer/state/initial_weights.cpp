// Implementation of initial_weights.hpp.
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
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/models/foreign_config.hpp"
#include "trainer/models/low_rank.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUpdatesAlone =
    " has low-rank updates alone, without the model that they are of: give the checkpoint that they are from, or what "
    "--export-weights writes of it";

std::vector<NamedTensor> read(const fs::path& source) {
  std::error_code none;
  if (fs::is_directory(source, none)) return load_weights(source).model;
  return read_safetensors(source).tensors;
}

std::string advice_on(const fs::path& source) {
  std::error_code none;
  const fs::path newest = source / "checkpoints" / "latest";
  if (fs::exists(newest, none)) {
    return source.string() + " is a run directory: give its newest checkpoint, " + newest.string();
  }
  return "Give a safetensors file, or a checkpoint's folder such as RUN_DIR/checkpoints/latest";
}

struct ConfigOfRun {
  fs::path file;
  TrainConfig config;
};

// Returns the folder of a checkpoint or of a file.
fs::path folder_of(const fs::path& source) {
  std::error_code unknown;
  const fs::path real = fs::canonical(source, unknown);  // checkpoints/latest is a link
  return fs::is_directory(real, unknown) ? real : real.parent_path();
}

// Returns the config of the run that wrote a checkpoint, a file in it, or a file in the run directory. nullopt if `source` is
// elsewhere or the config cannot be read.
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

// Returns the config.json of Hugging Face or timm in the weights' folder. Null if there is none.
nlohmann::json foreign_config_in(const fs::path& file) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return nullptr;
  const std::string text = read_bounded(file, kMost, "a model's config");
  try {
    nlohmann::json value = parse_json_within(text, {.depth = 16});
    return is_foreign_config(value) ? value : nlohmann::json();
  } catch (const UsageError&) {
    return nullptr;  // for example a train.json with comments
  }
}

void refuse(const std::string& differences, const fs::path& source, const fs::path& file) {
  if (differences.empty()) return;
  throw OtherModelError(source.string() + " holds another model than this config: " + differences + ". \"There\" is " +
                        file.string() +
                        ". Set these keys to its values; if that file does not belong to the weights, move it away");
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace

std::string no_whole_model(const fs::path& folder) {
  std::error_code none;
  if (fs::exists(folder / "adapter_config.json", none)) return folder.string() + kUpdatesAlone;
  if (fs::exists(folder / "train.graph", none)) {
    return folder.string() + " is an exported model and no checkpoint: a run whose model.path it is begins with its weights";
  }
  return "";
}

std::vector<NamedTensor> initial_weights(const fs::path& source) {
  if (const std::string problem = no_whole_model(source); !problem.empty()) throw UsageError(problem);
  std::vector<NamedTensor> tensors;
  try {
    tensors = read(source);
  } catch (const UsageError& problem) {
    throw UsageError(std::string(problem.what()) + ". " + advice_on(source));
  }
  const auto is_update = [](const NamedTensor& entry) { return is_of_update(entry.name); };
  if (!tensors.empty() && std::ranges::all_of(tensors, is_update)) throw UsageError(source.string() + kUpdatesAlone);
  return tensors;
}

std::string compare_alpha(const std::vector<NamedTensor>& weights, const fs::path& source, const LoraConfig& config) {
  if (std::ranges::none_of(weights, [](const NamedTensor& entry) { return is_of_update(entry.name); })) return "";
  const std::optional<ConfigOfRun> run = config_of_run(source);
  if (!run || run->config.model.lora.rank == 0) {
    return "no config says with which model.lora.alpha its low-rank updates were trained: they are taken with " +
           number_text(config.alpha);
  }
  const double before = run->config.model.lora.alpha;
  if (before == config.alpha) return "";
  throw UsageError("the low-rank updates of " + source.string() + " were trained with model.lora.alpha " + number_text(before) +
                   ", and compute something else with " + number_text(config.alpha) +
                   ", which this config says. Set model.lora.alpha to " + number_text(before) +
                   ", or begin with --export-weights of that run");
}

std::string compare_model(const fs::path& source, const TrainConfig& config) {
  const fs::path beside = folder_of(source) / "config.json";
  if (const nlohmann::json theirs = foreign_config_in(beside); !theirs.is_null()) {
    refuse(foreign_contradictions(theirs, config), source, beside);
    return "";
  }
  if (const auto run = config_of_run(source)) {
    if (run->config.worker.empty()) refuse(contradictions(run->config.model, config.model), source, run->file);
    return "";
  }
  const std::string keys = keys_without_a_shape(config.model);
  return keys.empty() ? "" : "no config.json next to them confirms " + keys;
}

std::string compare_held_out(const fs::path& source, const TrainConfig& config) {
  if (!config.data.validation.is_set()) return "";
  const auto run = config_of_run(source);
  if (!run) return "";
  const TrainConfig& before = run->config;
  if (before.data.type != config.data.type || before.data.dir != config.data.dir) return "";
  if (!before.data.validation.is_set()) {
    return "that run trained on the same data without data.validation: it used the samples that are held out now";
  }
  const bool same_part = before.data.validation.fraction == config.data.validation.fraction &&
                         before.data.validation.samples == config.data.validation.samples &&
                         before.data.train_samples == config.data.train_samples;
  if (before.seed == config.seed && same_part) return "";
  return "that run held out other samples of the same data (" +
         (before.seed != config.seed ? "seed " + std::to_string(before.seed) + " then, " + std::to_string(config.seed) + " now"
                                     : std::string("data.validation or data.train_samples differ")) +
         "): it used some of those that are held out now, so validation figures are too good";
}

}  // namespace ddprun::trainer
