#include "launcher/query/local/status_texts.hpp"

#include <algorithm>

#include "common/base/printable.hpp"
#include "launcher/events/printf_text.hpp"
#include "launcher/events/progress.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

// Returns the worker's resident memory as text, or an empty text if it is unknown.
std::string memory_of(const json& worker) {
  const double mib = static_cast<double>(number_of(worker, "memory_bytes")) / (1 << 20);
  if (mib <= 0) return {};
  return mib < 1024 ? printed("%.0f MiB", mib) : printed("%.1f GiB", mib / 1024);
}

bool has_number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number();
}

// Returns a text such as "41.2 ms", or an empty text if the value is unknown.
std::string ms_of(const json& worker, const char* key) {
  return has_number(worker, key) ? printed("%.1f ms", seconds_of(worker, key) * 1000) : "";
}

}  // namespace

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? printable(found->get<std::string>()) : "";
}

std::int64_t number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

double seconds_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string gpu_text(const json& gpu) {
  if (!gpu.is_object()) return {};
  std::string text;
  if (const auto percent = gpu.find("percent"); percent != gpu.end() && percent->is_number_integer())
    text = std::to_string(percent->get<std::int64_t>()) + " %";
  const auto gib = [&](const char* key) { return static_cast<double>(number_of(gpu, key)) / (1 << 30); };
  if (const double total = gib("memory_total_bytes"); total > 0)
    text += (text.empty() ? "" : ", ") + printed("%.1f", gib("memory_used_bytes")) + " of " + printed("%.1f GiB", total);
  return text;
}

// The restart budget is refilled when training makes progress, so the number of used restarts can exceed the budget. The text
// then omits the budget.
std::string job_state_text(const json& status) {
  const std::int64_t used = number_of(status, "restart_count"), budget = number_of(status, "max_restarts");
  return text_of(status, "state") + " for " + format_duration(seconds_of(status, "seconds")) + ", " + std::to_string(used) +
         (used <= budget ? " of " + std::to_string(budget) : "") + " restarts used";
}

const json& first_with(const std::vector<json>& nodes, const char* key) {
  static const json kNone;
  const auto has_value = [key](const json& node) {
    return node.contains(key) && !node[key].is_null() &&
           (!node[key].is_string() || !node[key].get_ref<const std::string&>().empty());
  };
  const auto found = std::find_if(nodes.begin(), nodes.end(), has_value);
  return found == nodes.end() ? kNone : (*found)[key];
}

int first_rank_here(const json& status) {
  for (const json& worker : status.value("workers", json::array())) {
    if (worker.is_object()) return static_cast<int>(number_of(worker, "rank") - number_of(worker, "local_rank"));
  }
  return 0;
}

WorkerTexts worker_texts(const json& worker) {
  const bool ended = text_of(worker, "state") == "ended";
  const std::string phase = text_of(worker, "phase");
  WorkerTexts texts{.rank = std::to_string(number_of(worker, "rank")),
                    .pid = std::to_string(number_of(worker, "pid")),
                    .state = ended            ? text_of(worker, "how_it_ended")
                             : !phase.empty() ? phase
                                              : text_of(worker, "state"),
                    .step = has_number(worker, "step") ? format_count(number_of(worker, "step")) : "",
                    .silent = {},
                    .own = {},
                    .waiting = {},
                    .memory = memory_of(worker),
                    .gpu = worker.contains("gpu") ? gpu_text(worker["gpu"]) : ""};
  if (ended) return texts;
  if (has_number(worker, "silent_s")) texts.silent = format_duration(seconds_of(worker, "silent_s"));
  texts.own = ms_of(worker, "own_s");
  texts.waiting = ms_of(worker, "waiting_s");
  return texts;
}

}  // namespace ddprun
