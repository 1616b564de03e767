// Implementation of openmetrics.hpp. The format requires that all lines of a metric family directly follow its # TYPE line.
#include "launcher/query/local/openmetrics.hpp"

#include <algorithm>
#include <functional>
#include <set>

namespace ddprun {
namespace {

using nlohmann::json;

std::string label_value(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

// A metric family, which has one line for each known value. If several values have the same labels, only the first one is
// kept: Prometheus rejects all metrics of a response with a duplicate series.
class Family {
 public:
  Family(std::string name, const char* type, const char* help) : name_(std::move(name)) {
    head_ = "# TYPE " + name_ + " " + type + "\n# HELP " + name_ + " " + help + "\n";
    if (std::string(type) == "counter") name_ += "_total";
  }
  void add(const std::string& labels, const json& value) {
    if ((!value.is_number() && !value.is_boolean()) || !reported_labels_.insert(labels).second) return;
    lines_ += name_ + "{" + labels + "} " + (value.is_boolean() ? (value.get<bool>() ? "1" : "0") : value.dump()) + "\n";
  }
  std::string text() const { return lines_.empty() ? "" : head_ + lines_; }

 private:
  std::string name_, head_, lines_;
  std::set<std::string> reported_labels_;
};

const json& member(const json& object, const char* key) {
  static const json kNothing;
  return object.is_object() && object.contains(key) ? object[key] : kNothing;
}

std::string string_of(const json& object, const char* key) {
  const json& value = member(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

struct JobGauge {
  const char *name, *type, *key, *help;
};
constexpr JobGauge kJobGauges[] = {
    {"ddprun_job_seconds", "gauge", "seconds", "Time since the job started."},
    {"ddprun_restarts", "counter", "restart_count", "Restarts of the job so far."},
    {"ddprun_max_restarts", "gauge", "max_restarts", "Maximum number of restarts."},
    {"ddprun_workers", "gauge", "world_size", "Workers of the whole job, on all nodes."},
    {"ddprun_nodes", "gauge", "nodes", "Nodes of the job."},
};
constexpr JobGauge kProgressGauges[] = {
    {"ddprun_step", "gauge", "step", "Finished steps."},
    {"ddprun_steps_total_planned", "gauge", "steps_total", "Planned steps of the whole run; 0 if unknown."},
    {"ddprun_loss", "gauge", "loss", "Loss of the newest logged step."},
    {"ddprun_samples_per_second", "gauge", "samples_per_s", "Samples per second of the whole job."},
    {"ddprun_seconds_left", "gauge", "seconds_left",
     "Estimated seconds to the end of the run, at the speed of the current round."},
};
constexpr JobGauge kWorkerGauges[] = {
    {"ddprun_worker_step", "gauge", "step", "Newest step that the worker has reported."},
    {"ddprun_worker_silent_seconds", "gauge", "silent_s", "Time since the last message of the worker."},
    {"ddprun_worker_own_seconds", "gauge", "own_s", "Seconds per step that the rank spent on its own work."},
    {"ddprun_worker_waiting_seconds", "gauge", "waiting_s", "Seconds per step that the rank waited for other ranks."},
    {"ddprun_worker_memory_bytes", "gauge", "memory_bytes", "Resident memory of the worker process."},
};

}  // namespace

// While a round starts, some nodes still report the previous round. Two nodes may then report the same rank or the progress of
// rank 0. Nodes with newer rounds come first, so their values are kept.
std::string openmetrics_of(const json& job, std::vector<json> nodes) {
  const auto round_of = [](const json& node) {
    return member(node, "round").is_number_integer() ? node["round"].get<int>() : -1;
  };
  std::ranges::stable_sort(nodes, std::ranges::greater(), round_of);
  const std::string labels =
      "title=\"" + label_value(string_of(job, "title")) + "\",run_dir=\"" + label_value(string_of(job, "run_dir")) + "\"";
  std::string text;
  const auto families = [&](const auto& table, const std::function<void(Family&, const char* key)>& fill) {
    for (const JobGauge& one : table) {
      Family family(one.name, one.type, one.help);
      fill(family, one.key);
      text += family.text();
    }
  };
  Family state("ddprun_job_state", "gauge", "1 for the state that the job is in.");
  state.add(labels + ",state=\"" + label_value(string_of(job, "state")) + "\"", 1);
  text += state.text();
  families(kJobGauges, [&](Family& family, const char* key) { family.add(labels, member(job, key)); });
  families(kProgressGauges, [&](Family& family, const char* key) {
    for (const json& node : nodes) family.add(labels, member(member(node, "progress"), key));
  });
  const auto for_each_worker = [&](const std::function<void(const std::string&, const json&)>& fill) {
    for (const json& node : nodes) {
      for (const json& worker : member(node, "workers")) {
        if (!member(worker, "rank").is_number()) continue;
        fill(labels + ",node=\"" + label_value(string_of(node, "host")) + "\",rank=\"" + worker["rank"].dump() + "\"", worker);
      }
    }
  };
  Family running("ddprun_worker_running", "gauge", "1 while the worker runs, 0 after it has ended.");
  for_each_worker([&](const std::string& of_worker, const json& worker) {
    running.add(of_worker, string_of(worker, "state") == "running");
  });
  text += running.text();
  families(kWorkerGauges, [&](Family& family, const char* key) {
    for_each_worker([&](const std::string& of_worker, const json& worker) { family.add(of_worker, member(worker, key)); });
  });
  return text + "# EOF\n";
}

}  // namespace ddprun
