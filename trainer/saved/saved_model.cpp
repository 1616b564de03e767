// Implementation of saved_model.hpp.
#include "trainer/saved/saved_model.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/run_directory.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/state/initial_weights.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

// checkpoints/latest is a link, and so may be the run directory.
fs::path followed(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (!error) return real;
  throw UsageError(path.string() + ": " + error.message() + "; expected a run directory, a checkpoint's folder such as " +
                   "RUN_DIR/checkpoints/latest, or a safetensors file");
}

// Run directory, checkpoint or file. The folder of all checkpoints stands for its run.
fs::path place_of_model(const fs::path& from) {
  fs::path place = followed(from);
  std::error_code none;
  if (!fs::is_directory(place, none)) return place;
  const fs::path above = place.parent_path();
  if (is_run_directory(above) && place == RunLayout{above}.checkpoints()) return above;
  if (is_run_directory(place) || fs::exists(place / kManifestFile, none)) return place;
  if (const std::string problem = no_whole_model(place); !problem.empty()) throw UsageError(problem);
  if (fs::exists(RunLayout{place}.config(), none)) {
    throw UsageError(from.string() + " is a run directory without checkpoints: nothing was saved in it yet");
  }
  throw UsageError(from.string() +
                   " is neither a run directory, which has a folder checkpoints, nor a checkpoint, which has a " +
                   kManifestFile);
}

// The worker program that trained last in a run directory; empty: ddptrain did, or it is not known.
std::string recorded_program(const RunLayout& run) {
  std::ifstream in(run.worker(), std::ios::binary);
  const nlohmann::json record = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  const auto program = record.is_object() ? record.find("program") : record.end();
  return program != record.end() && program->is_string() ? program->get<std::string>() : "";
}

void refuse_model_of(const std::string& worker, const fs::path& from) {
  std::error_code none;
  if (worker.empty() || fs::equivalent("/proc/self/exe", worker, none)) return;
  throw UsageError(from.string() + " is of a model that only the worker program " + worker + " knows: " + worker + " eval " +
                   from.string() + " measures it");
}

}  // namespace

bool is_run_directory(const fs::path& folder) {
  std::error_code none;
  return fs::is_directory(RunLayout{folder}.checkpoints(), none);
}

fs::path newest_valid_checkpoint(const fs::path& run_dir) {
  const fs::path checkpoints = RunLayout{run_dir}.checkpoints();
  std::string problems;
  for (Candidate& candidate : list_checkpoints(checkpoints)) {
    verify_checkpoint(candidate);
    if (candidate.problem.empty()) return candidate.path;
    problems += "\n  " + candidate.problem;
  }
  throw UsageError(checkpoints.string() + " has no valid checkpoint" + (problems.empty() ? "" : ":" + problems));
}

SavedModel find_saved_model(const fs::path& from, const fs::path& config, const std::vector<std::string>& overrides,
                            const std::optional<TaskConfig>& own) {
  const fs::path place = place_of_model(from);
  std::error_code none;
  const bool folder = fs::is_directory(place, none);
  const fs::path run = !folder ? fs::path() : is_run_directory(place) ? place : place.parent_path().parent_path();
  const fs::path config_file = !config.empty() ? config : folder ? RunLayout{run}.config() : fs::path();
  if (config_file.empty()) {
    throw UsageError(from.string() + " does not say what model it is of; name its train.json by --config");
  }
  if (!fs::exists(config_file, none)) {
    throw UsageError(config_file.string() + " is not there" +
                     (config.empty() ? ", and nothing else says what model " + from.string() +
                                           " is of; name its train.json by "
                                           "--config"
                                     : ""));
  }
  if (!own && config.empty()) refuse_model_of(recorded_program(RunLayout{run}), from);
  SavedModel saved;
  saved.config = load_config(config_file, overrides, nullptr, [&](const std::string&) { return own.value_or(TaskConfig()); });
  if (!own) refuse_model_of(saved.config.worker, from);
  saved.weights = place == run ? newest_valid_checkpoint(run) : place;
  return saved;
}

}  // namespace ddprun::trainer
