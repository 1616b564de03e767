// Implementation of initial_weights.hpp.
#include "trainer/state/initial_weights.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <system_error>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/safetensors.hpp"
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

// The config of the run that a checkpoint, or a file in it, is of. Nothing: it lies elsewhere, or can't be read.
std::optional<TrainConfig> config_of_run(const fs::path& source) {
  std::error_code unknown;
  const fs::path real = fs::canonical(source, unknown);  // checkpoints/latest is a link
  const fs::path checkpoint = fs::is_directory(real, unknown) ? real : real.parent_path();
  const fs::path file = checkpoint.parent_path().parent_path() / "config.json";
  if (!fs::is_regular_file(file, unknown)) return std::nullopt;
  try {
    return load_config(file, {});
  } catch (const UsageError&) {
    return std::nullopt;
  }
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
  const std::optional<TrainConfig> before = config_of_run(source);
  if (!before || before->model.lora.rank == 0) {
    return "no config says with which model.lora.alpha its low-rank updates were trained: they are taken with " +
           number_text(config.alpha);
  }
  if (before->model.lora.alpha == config.alpha) return "";
  throw UsageError("the low-rank updates of " + source.string() + " were trained with model.lora.alpha " +
                   number_text(before->model.lora.alpha) + ", and compute something else with " + number_text(config.alpha) +
                   ", which this config says. Set model.lora.alpha to " + number_text(before->model.lora.alpha) +
                   ", or begin with --export-weights of that run");
}

}  // namespace ddprun::trainer
