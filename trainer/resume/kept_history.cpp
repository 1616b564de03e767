#include "trainer/resume/kept_history.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/system/atomic_file.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

bool mentions_checkpoint(const fs::path& metrics) {
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

// Returns the smallest number N for which no file PATH.N exists, for any of the paths. So the renamed files of one run have the
// same number.
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

std::vector<fs::path> archive_orphaned_history(const RunLayout& layout) {
  std::vector<fs::path> kept;
  if (!mentions_checkpoint(layout.metrics())) return kept;
  // metrics.jsonl is renamed last, because this function uses it to detect an earlier run. If the process is killed in this
  // loop, this function finds the metrics when the run starts the next time, and renames the remaining files.
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
