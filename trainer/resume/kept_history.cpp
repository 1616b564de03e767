#include "trainer/resume/kept_history.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/system/atomic_file.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

bool tells_of_a_checkpoint(const fs::path& metrics) {
  std::error_code unknown;
  if (!fs::is_regular_file(metrics, unknown)) return false;
  std::ifstream in(metrics, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    if (line.find("\"checkpoint\"") == std::string::npos) continue;
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (record.is_object() && record.contains("event") && record["event"] == "checkpoint") return true;
  }
  return false;
}

// One number for all paths, so that their names match.
int free_number(const std::vector<fs::path>& paths) {
  for (int number = 1;; ++number) {
    bool taken = false;
    for (const fs::path& path : paths) {
      taken = taken || fs::exists(fs::symlink_status(path.string() + "." + std::to_string(number)));
    }
    if (!taken) return number;
  }
}

}  // namespace

std::vector<fs::path> keep_history_without_checkpoints(const RunLayout& layout) {
  std::vector<fs::path> kept;
  if (!tells_of_a_checkpoint(layout.metrics())) return kept;
  // Rename the metrics last. They show that there is a history to keep. So after a kill in this loop the next start finishes
  // the renames.
  const std::vector<fs::path> paths{layout.ledger(), layout.tensorboard(), layout.metrics()};
  const std::string ending = "." + std::to_string(free_number(paths));
  for (const fs::path& path : paths) {
    if (!fs::exists(fs::symlink_status(path))) continue;
    fs::rename(path, path.string() + ending);
    kept.push_back(path.string() + ending);
  }
  fsync_directory(layout.root);
  return kept;
}

}  // namespace ddprun::trainer
