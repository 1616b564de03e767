#include "trainer/saved/saved_model.hpp"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/hugging_face/auto_model.hpp"
#include "common/run_directory/run_directory.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/state/initial_weights.hpp"
#include "trainer/state/pretrained_files.hpp"
#include "trainer/state/training_state.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

// Resolves symbolic links in the path, such as checkpoints/latest. Throws UsageError if the path does not exist.
fs::path followed(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (!error) return real;
  throw UsageError(path.string() + ": " + error.message() + "; expected a run directory, a checkpoint's folder such as " +
                   "RUN_DIR/checkpoints/latest, or a safetensors file");
}

// Returns true if the folder contains a folder of checkpoints.
bool is_run_directory(const fs::path& folder) {
  std::error_code none;
  return fs::is_directory(RunLayout{folder}.checkpoints(), none);
}

std::vector<Candidate> checkpoints_in(const fs::path& folder) {
  try {
    return list_checkpoints(folder);
  } catch (const std::system_error& unreadable) {
    throw UsageError(unreadable.what());
  }
}

// Returns the real path of `from`, which is a run directory, a folder of checkpoints, a checkpoint or a file. If `from` is the
// folder of checkpoints in a run directory, returns the run directory. Throws UsageError for any other folder.
fs::path place_of_model(const fs::path& from) {
  fs::path place = followed(from);
  std::error_code none;
  if (!fs::is_directory(place, none) || is_run_directory(place) || fs::exists(place / kManifestFile, none)) return place;
  if (is_pretrained_folder(place) || !checkpoints_in(place).empty()) return place;
  const fs::path above = place.parent_path();
  if (is_run_directory(above) && place == RunLayout{above}.checkpoints()) return above;
  if (const std::string problem = why_not_a_model(place); !problem.empty()) throw UsageError(problem);
  if (fs::exists(RunLayout{place}.config(), none)) {
    throw UsageError(from.string() + " is a run directory without checkpoints: no checkpoint was saved yet");
  }
  throw UsageError(from.string() +
                   " is neither a run directory, which has a folder \"checkpoints\", nor a checkpoint, which has a " +
                   kManifestFile);
}

fs::path newest_valid_in(const fs::path& checkpoints) {
  std::vector<std::string> problems;
  for (Candidate& candidate : checkpoints_in(checkpoints)) {
    verify_checkpoint(candidate);
    if (!candidate.problem.empty()) {
      problems.push_back(std::move(candidate.problem));
      continue;
    }
    if (!problems.empty()) {
      std::fprintf(stderr, "ddptrain: the newest checkpoint is damaged: %s%s; %s is used instead\n", problems.front().c_str(),
                   problems.size() == 1 ? "" : (", and so are " + std::to_string(problems.size() - 1) + " before it").c_str(),
                   candidate.path.c_str());
    }
    return candidate.path;
  }
  std::string text = checkpoints.string() + " has no valid checkpoint" + (problems.empty() ? "" : ":");
  for (const std::string& problem : problems) text += "\n  " + problem;
  throw UsageError(text);
}

// If `place` is a run directory or a folder of checkpoints, returns the newest valid checkpoint in it. Otherwise returns
// `place`.
fs::path checkpoint_at(const fs::path& place) {
  if (is_run_directory(place)) return newest_valid_in(RunLayout{place}.checkpoints());
  std::error_code none;
  const bool whole = !fs::is_directory(place, none) || fs::exists(place / kManifestFile, none) || is_pretrained_folder(place);
  return whole ? place : newest_valid_in(place);
}

// Returns the run directory that should contain `place`. But if `place` is a copy on a node's disk, outside of the run
// directory, the result is not a run directory.
fs::path run_around(const fs::path& place) {
  if (is_run_directory(place)) return place;
  std::error_code none;
  return fs::exists(place / kManifestFile, none) ? place.parent_path().parent_path() : place.parent_path();
}

// Returns the worker program that last trained in the run directory. Returns an empty string if it is unknown.
std::string recorded_program(const RunLayout& run) {
  std::error_code none;
  if (!fs::is_regular_file(run.worker(), none)) return "";
  std::ifstream in(run.worker(), std::ios::binary);
  const nlohmann::json record = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  const auto program = record.is_object() ? record.find("program") : record.end();
  return program != record.end() && program->is_string() ? program->get<std::string>() : "";
}

void refuse_model_of(const std::string& worker, const fs::path& from) {
  std::error_code none;
  if (worker.empty() || fs::equivalent("/proc/self/exe", worker, none)) return;
  throw UsageError(from.string() + " belongs to a model of the worker program " + worker + "; evaluate it with " + worker +
                   " eval " + from.string() + " instead");
}

// Returns true for the folder of a Hugging Face model, and for a file of weights next to the config.json of such a model.
bool is_hugging_face_model(const fs::path& from) {
  std::error_code none;
  if (fs::is_directory(from, none)) return is_pretrained_folder(from) && !fs::exists(from / kManifestFile, none);
  if (!fs::exists(from, none) || !fs::exists(from.parent_path() / "config.json", none)) return false;
  try {
    read_hugging_face_folder(from);
    return true;
  } catch (const UsageError&) {
    return false;  // the config.json of a run
  }
}

// Returns the config of a Hugging Face model, for commands without a train.json. The data keys that it lacks are set with
// overrides.
TrainConfig config_of_hugging_face(const fs::path& from, const std::vector<std::string>& overrides) {
  const fs::path model = fs::absolute(from);
  std::error_code none;
  const fs::path folder = fs::is_directory(model, none) ? model : model.parent_path();
  const nlohmann::json config{{"model", {{"type", "auto"}, {"init", model.string()}}},
                              {"data", {{"type", "tokens"}, {"dir", folder.string()}}}};
  return parse_config(config.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace),
                      "the config for " + from.string(), fs::current_path(), overrides);
}

}  // namespace

fs::path checkpoint_of_folder(const fs::path& from) {
  return checkpoint_at(place_of_model(from));
}

fs::path config_next_to(const fs::path& checkpoint) {
  return RunLayout{run_around(followed(checkpoint))}.config();
}

SavedModel find_saved_model(const fs::path& from, const fs::path& config, const std::vector<std::string>& overrides,
                            const std::optional<TaskConfig>& own) {
  if (config.empty() && !own && is_hugging_face_model(from)) {
    return {.config = config_of_hugging_face(from, overrides), .weights = from};
  }
  const fs::path place = place_of_model(from);
  std::error_code none;
  const bool folder = fs::is_directory(place, none);
  const fs::path run = folder ? run_around(place) : fs::path();
  const fs::path config_file = !config.empty() ? config : folder ? RunLayout{run}.config() : fs::path();
  if (config_file.empty())
    throw UsageError(from.string() + " does not contain the config of its model; pass the train.json of its run with --config");
  if (!fs::exists(config_file, none)) {
    throw UsageError(config_file.string() + " does not exist" +
                     (config.empty()
                          ? ", so the model of " + from.string() + " is unknown; pass the train.json of its run with --config"
                          : ""));
  }
  if (!own && config.empty()) refuse_model_of(recorded_program(RunLayout{run}), from);
  SavedModel saved;
  saved.config = load_config(config_file, overrides, nullptr, [&](const std::string&) { return own.value_or(TaskConfig()); });
  if (!own) refuse_model_of(saved.config.worker, from);
  saved.weights = checkpoint_at(place);
  if (folder) saved.config.data.columns_file = RunLayout{run}.columns();
  return saved;
}

LoadedModel load_model(const SavedModel& saved, const Task& task, const Description& samples) {
  const TrainConfig& config = saved.config;
  const c10::Device device = choose_device(config.device, WorkerEnvironment{}, Fallback::kCpu);
  use_precision(config.precision);
  LoadedModel loaded{.device = device, .module = task.make_module(samples, device)};
  lay_out(*loaded.module, config.channels_last);
  take_weights(loaded.module, saved.weights, config);
  loaded.module->eval();
  return loaded;
}

}  // namespace ddprun::trainer
