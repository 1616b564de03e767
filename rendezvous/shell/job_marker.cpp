// Implementation of job_marker.hpp. The file contains {"job": "running"} or {"job": "over"}.
#include "rendezvous/shell/job_marker.hpp"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/system/atomic_file.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMaxMarkerBytes = 4096;  // a marker is about 20 bytes long

}  // namespace

void JobMarker::add_to(RestoredState& restored) const {
  if (file_.empty() || ::access(file_.c_str(), R_OK) != 0) return;
  restored.had_storage = true;
  bool is_over = false;
  try {
    const nlohmann::json json = parse_json_within(read_bounded(file_, kMaxMarkerBytes, "the marker of a job"), {.depth = 2});
    is_over = json.is_object() && json.contains("job") && json["job"] == "over";
  } catch (const UsageError&) {
    // The error is ignored, because a damaged file counts as "running".
  }
  restored.job_elsewhere = restored.job_elsewhere || !is_over;
}

void JobMarker::note_over() {
  std::error_code ignored;
  if (std::filesystem::exists(file_, ignored)) note(false);
}

void JobMarker::note(bool running) {
  if (file_.empty() || noted_ == running) return;
  noted_ = running;
  try {
    write_file_atomically(file_, nlohmann::json{{"job", running ? "running" : "over"}}.dump() + "\n");
  } catch (const std::exception&) {
  }
}

}  // namespace ddprun::rendezvous
