#include "launcher/query/local/gpus_of_job.hpp"

#include <algorithm>
#include <chrono>
#include <string>

#include "launcher/query/local/control_socket.hpp"
#include "launcher/query/local/status_texts.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

const json& array_in(const json& object, const char* key) {
  static const json kNone = json::array();
  const bool there = object.is_object() && object.contains(key) && object[key].is_array();
  return there ? object[key] : kNone;
}

json device_of(const json& worker, const json& gpus) {
  if (text_of(worker, "state") != "running") return nullptr;
  const std::int64_t pid = number_of(worker, "pid");
  for (const json& gpu : gpus) {
    const json& pids = array_in(gpu, "pids");
    if (pid > 0 && std::any_of(pids.begin(), pids.end(), [pid](const json& one) { return one == pid; })) return gpu;
  }
  const auto place = static_cast<std::size_t>(std::max<std::int64_t>(0, number_of(worker, "local_rank")));
  return place < gpus.size() && gpus[place].is_object() ? gpus[place] : json();
}

}  // namespace

void add_gpus(json& status, const json& answer) {
  if (!status.is_object() || !status.contains("workers") || !status["workers"].is_array()) return;
  const json& gpus = array_in(answer, "gpus");
  for (json& worker : status["workers"]) {
    if (!worker.is_object()) continue;
    worker["gpu"] = device_of(worker, gpus);
    if (worker["gpu"].is_object()) worker["gpu"].erase("pids");
  }
}

void query_gpus(RunningJob& job) {
  const auto text = query_job(job.socket, kGpusRequest, std::chrono::seconds(3));
  add_gpus(job.status, text ? json::parse(*text, nullptr, false) : json());
}

void query_gpus(const RunningJob& job, ClusterAnswers& nodes) {
  const ClusterAnswers gpu_answers = query_nodes(job, {{"ask", "gpus"}}, std::chrono::seconds(3));
  for (std::size_t i = 0; i < nodes.answers.size(); ++i) {
    const auto found = std::ranges::find(gpu_answers.names, nodes.names[i]);
    const bool known = !nodes.names[i].empty() && found != gpu_answers.names.end();
    add_gpus(nodes.answers[i],
             known ? gpu_answers.answers[static_cast<std::size_t>(found - gpu_answers.names.begin())] : json());
  }
}

}  // namespace ddprun
