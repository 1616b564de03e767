// Implementation of chosen_job.hpp.
#include "launcher/commands/chosen_job.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "launcher/commands/terminal_page.hpp"
#include "launcher/events/printed.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string padded(std::string text, std::size_t width) {
  const std::size_t shown = characters_in(text);
  if (shown < width) text.append(width - shown, ' ');
  return text + "  ";
}

// The first row is the header. Columns are as wide as their widest entry; the last column is not padded.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], characters_in(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) text += padded(row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

double seconds_of(const json& status, const char* key) {
  return status.contains(key) && status[key].is_number() ? status[key].get<double>() : 0;
}

// The worker's resident memory; empty if unknown.
std::string memory_of(const json& worker) {
  const double mib = static_cast<double>(number_of(worker, "memory_bytes")) / (1 << 20);
  if (mib <= 0) return {};
  char text[32];
  std::snprintf(text, sizeof text, mib < 1024 ? "%.0f MiB" : "%.1f GiB", mib < 1024 ? mib : mib / 1024);
  return text;
}

// Whether `text` returns a non-empty text for any worker.
bool has_any(const std::vector<json>& nodes, const std::function<std::string(const json& worker)>& text) {
  return std::ranges::any_of(nodes, [&](const json& node) {
    const json workers = node.value("workers", json::array());
    return std::ranges::any_of(workers, [&](const json& worker) { return worker.is_object() && !text(worker).empty(); });
  });
}

std::string gpu_of(const json& worker) {
  return worker.contains("gpu") ? gpu_text(worker["gpu"]) : "";
}

// The value of `key` from the first node that has it; null if none has.
const json& first_with(const std::vector<json>& nodes, const char* key) {
  static const json kNone;
  const auto tells = [key](const json& node) {
    return node.contains(key) && !node[key].is_null() &&
           (!node[key].is_string() || !node[key].get_ref<const std::string&>().empty());
  };
  const auto found = std::find_if(nodes.begin(), nodes.end(), tells);
  return found == nodes.end() ? kNone : (*found)[key];
}

// "41.2 ms"; empty if unknown.
std::string ms_of(const json& worker, const char* key) {
  return worker.contains(key) && worker[key].is_number() ? printed("%.1f ms", seconds_of(worker, key) * 1000) : "";
}

struct Columns {
  bool paces = false;  // whether step times are known
  bool gpus = false;
};

std::vector<std::string> row_of(const json& worker, Columns columns) {
  const bool ended = text_of(worker, "state") == "ended";
  const std::string phase = text_of(worker, "phase");
  const bool spoke = worker.contains("silent_s") && worker["silent_s"].is_number();
  std::vector<std::string> row{
      std::to_string(number_of(worker, "rank")),
      std::to_string(number_of(worker, "pid")),
      ended            ? text_of(worker, "how_it_ended")
      : !phase.empty() ? phase
                       : text_of(worker, "state"),
      worker.contains("step") && worker["step"].is_number() ? format_count(number_of(worker, "step")) : "",
      spoke && !ended ? format_duration(seconds_of(worker, "silent_s")) : "",
      memory_of(worker)};
  if (columns.paces) row.insert(row.end() - 1, {ended ? "" : ms_of(worker, "own_s"), ended ? "" : ms_of(worker, "waiting_s")});
  if (columns.gpus) row.push_back(gpu_of(worker));
  return row;
}

bool is_meant(const RunningJob& job, const std::string& word) {
  if (word == std::to_string(job.agent)) return true;
  if (job.status.is_null()) return false;
  if (word == text_of(job.status, "title")) return true;
  std::error_code error;
  const std::string run_dir = job.status.value("run_dir", "");
  return !run_dir.empty() && fs::equivalent(word, run_dir, error) && !error;
}

// Whether all agents belong to one job: the lock of a run directory belongs to one job at a time.
bool are_of_one_job(const std::vector<RunningJob>& jobs) {
  const auto run_dir = [](const RunningJob& job) { return job.status.is_object() ? job.status.value("run_dir", "") : ""; };
  const std::string first = jobs.empty() ? std::string() : run_dir(jobs.front());
  return !first.empty() && std::ranges::all_of(jobs, [&](const RunningJob& job) {
    std::error_code error;
    return job.status.is_object() && job.status.value("several_nodes", false) && fs::equivalent(run_dir(job), first, error) &&
           !error;
  });
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

bool JobRequest::has(const std::string& flag) const {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

JobRequest parse_job_request(std::span<const std::string> args, std::span<const std::string_view> allowed,
                             const std::string& usage) {
  JobRequest request;
  const auto is_allowed = [&](std::string_view name) {
    return std::find(allowed.begin(), allowed.end(), name) != allowed.end();
  };
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::size_t equals = args[i].starts_with("--") ? args[i].find('=') : std::string::npos;
    const std::string name = args[i].substr(0, equals);
    if (name == "--help" || name == "-h") {
      request.help = true;
    } else if ((name == "--rank" || name == "--tail") && is_allowed(name)) {
      const std::string value = equals != std::string::npos ? args[i].substr(equals + 1)
                                : i + 1 < args.size()       ? args[++i]
                                                            : std::string();
      const auto number = parse_whole(value);
      if (!number || *number < 0 || *number > 1'000'000'000) {
        throw UsageError(printed("%s needs a number from 0 on, found '%s'; %s", name.c_str(), value.c_str(), usage.c_str()));
      }
      (name == "--rank" ? request.rank : request.tail) = static_cast<int>(*number);
    } else if (name.starts_with("-") && equals == std::string::npos && is_allowed(name)) {
      request.flags.push_back(name);
    } else if (name.starts_with("-") || !request.job.empty() || !is_allowed("JOB")) {
      throw UsageError("'" + args[i] + "' is one too many; " + usage);
    } else if (args[i].empty()) {  // probably an unset variable, which must not select the only running job
      throw UsageError("JOB is an empty word; " + usage);
    } else {
      request.job = args[i];
    }
  }
  return request;
}

RunningJob chosen_job(const std::string& word, Agents agents) {
  std::vector<RunningJob> jobs = running_jobs();
  if (jobs.empty())
    throw UsageError(
        "no job of yours runs on this machine; ddprun report FOLDER and ddprun logs FOLDER tell of one that has ended");
  std::vector<RunningJob> meant;
  for (const RunningJob& job : jobs) {
    if (word.empty() || is_meant(job, word)) meant.push_back(job);
  }
  if (meant.size() == 1 && meant.front().status.is_null()) {
    throw UsageError("the job of process " + std::to_string(meant.front().agent) +
                     " does not answer: it is stopped (Ctrl-Z?), or just starts or ends");
  }
  if (meant.size() == 1) return meant.front();
  const bool one_job = are_of_one_job(meant);
  if (one_job && agents == Agents::kAnyOfTheJob) {
    const auto leads = [](const RunningJob& job) { return job.status.value("leads", false); };
    const auto leader = std::ranges::find_if(meant, leads);
    return leader == meant.end() ? meant.front() : *leader;
  }
  const std::string which = meant.empty() ? "no job here has the PID, run directory or title '" + word + "'"
                            : one_job     ? "several agents of one job run here: name one by its PID"
                                          : "several jobs run here: name one by its PID or run directory";
  throw UsageError(which + "\n" + table_of(jobs));
}

std::string table_of(const std::vector<RunningJob>& jobs) {
  std::vector<std::vector<std::string>> rows{{"PID", "JOB", "STATE", "WORKERS", "STEP", "TIME", "RUN DIRECTORY"}};
  for (const RunningJob& job : jobs) {
    if (job.status.is_null()) {
      rows.push_back({std::to_string(job.agent), "?", "no answer", "", "", "", ""});
      continue;
    }
    const json& progress = job.status.contains("progress") ? job.status["progress"] : json();
    rows.push_back({std::to_string(job.agent), text_of(job.status, "title"), text_of(job.status, "state"),
                    std::to_string(number_of(job.status, "world_size")),
                    progress.is_object() ? format_count(number_of(progress, "step")) : "",
                    format_duration(seconds_of(job.status, "seconds")), text_of(job.status, "run_dir")});
  }
  return table(rows);
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

std::string status_text(const RunningJob& job, const std::vector<json>& nodes) {
  const json& status = job.status;
  const bool several = nodes.size() > 1 || status.value("several_nodes", false);
  // Progress may refill the budget, so more restarts may be used than the budget has.
  const std::int64_t used = number_of(status, "restart_count"), budget = number_of(status, "max_restarts");
  std::string text = text_of(status, "title") + " (process " + std::to_string(job.agent) + "): " + text_of(status, "state") +
                     " for " + format_duration(seconds_of(status, "seconds")) + ", " + std::to_string(used) +
                     (used <= budget ? " of " + std::to_string(budget) : "") + " restarts used";
  if (several) {
    text += ", node " + std::to_string(number_of(status, "node_rank")) + " of " + std::to_string(number_of(status, "nodes")) +
            " with " + std::to_string(number_of(status, "world_size")) + " workers in all";
  }
  text += "\n";
  if (const std::string run_dir = text_of(status, "run_dir"); !run_dir.empty()) text += "run directory " + run_dir + "\n";
  if (const json& progress = first_with(nodes, "progress"); progress.is_object()) text += text_of(progress, "line") + "\n";
  if (const json& failure = first_with(nodes, "last_failure"); failure.is_string()) {
    text += "last failure: " + printable(failure.get<std::string>()) + "\n";
  }
  std::vector<std::vector<std::string>> rows{{"RANK", "PID", "STATE", "STEP", "SILENT", "MEMORY"}};
  const Columns columns{.paces = has_any(nodes, [](const json& worker) { return ms_of(worker, "own_s"); }),
                        .gpus = has_any(nodes, gpu_of)};
  if (columns.paces) rows.front().insert(rows.front().end() - 1, {"OWN", "WAITS"});
  if (columns.gpus) rows.front().emplace_back("GPU");
  if (several) rows.front().insert(rows.front().begin(), "NODE");
  for (const json& node : nodes) {
    if (several && number_of(node, "workers_left_out") > 0) {
      rows.push_back({text_of(node, "host"), std::to_string(number_of(node, "workers_left_out")) + " workers"});
      rows.back().resize(rows.front().size());
    }
    for (const json& worker : node.value("workers", json::array())) {
      if (!worker.is_object()) continue;
      rows.push_back(row_of(worker, columns));
      if (several) rows.back().insert(rows.back().begin(), text_of(node, "host"));
    }
  }
  return rows.size() == 1 ? text : text + table(rows);
}

std::string prefixed(std::string_view lines, const std::string& prefix) {
  if (prefix.empty()) return std::string(lines);
  std::string text;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n') + 1);
    text.append(prefix).append(line);
    lines.remove_prefix(line.size());
  }
  return text;
}

void wait_for_end_of(pid_t process) {
  ends_within(std::chrono::milliseconds(-1), process);
}

bool ends_within(std::chrono::milliseconds time, pid_t process) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (fd < 0) return true;
  pollfd ended{fd, POLLIN, 0};
  int said = 0;
  while ((said = ::poll(&ended, 1, static_cast<int>(time.count()))) < 0 && errno == EINTR) {
  }
  ::close(fd);
  return said > 0;
}

}  // namespace ddprun
