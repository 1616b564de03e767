// Implementation of saved_model.hpp.
#include "trainer/saved/saved_model.hpp"

#include <system_error>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/run_directory.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

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

SavedModel find_saved_model(const fs::path& from, const fs::path& config, const std::vector<std::string>& overrides) {
  const fs::path place = followed(from);
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
  return {.config = load_config(config_file, overrides), .weights = place == run ? newest_valid_checkpoint(run) : place};
}

}  // namespace ddprun::trainer
