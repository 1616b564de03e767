// Implementation of job_marker.hpp: {"job": "running"} or {"job": "over"}.
#include "rendezvous/shell/job_marker.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/system/atomic_file.hpp"

namespace ddprun::rendezvous {

void JobMarker::add_to(Memory& memory) const {
  std::ifstream in(file_, std::ios::binary);
  if (file_.empty() || !in) return;
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
  memory.kept = true;
  memory.job_elsewhere = memory.job_elsewhere || !json.is_object() || json.value("job", "") != "over";
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
