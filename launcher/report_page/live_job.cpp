#include "launcher/report_page/live_job.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

void add_workers(LiveJob& job, const json& node, const std::map<int, std::string>& logs) {
  const std::string host = text_of(node, "host");
  if (const std::int64_t left_out = number_of(node, "workers_left_out"); left_out > 0) {
    job.workers.push_back({.node = host, .texts = {}, .log = {}});
    job.workers.back().texts.rank = std::to_string(left_out) + " workers";
  }
  for (const json& worker : node.value("workers", json::array())) {
    if (!worker.is_object()) continue;
    const auto log = logs.find(static_cast<int>(number_of(worker, "rank")));
    job.workers.push_back({.node = host, .texts = worker_texts(worker), .log = log == logs.end() ? "" : log->second});
  }
}

}  // namespace

LiveJob live_job_of(const std::vector<json>& nodes, const std::map<int, std::string>& logs, std::int64_t now_ns) {
  LiveJob job;
  job.now_ns = now_ns;
  if (nodes.empty()) return job;
  job.state = job_state_text(nodes.front());
  if (const json& progress = first_with(nodes, "progress"); progress.is_object()) {
    job.progress = text_of(progress, "line");
    job.step = number_of(progress, "step");
    job.steps_total = number_of(progress, "steps_total");
  }
  if (const json& failure = first_with(nodes, "last_failure"); failure.is_string())
    job.last_failure = failure.get<std::string>();
  for (const json& node : nodes) add_workers(job, node, logs);
  return job;
}

}  // namespace ddprun
