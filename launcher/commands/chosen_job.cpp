#include "launcher/commands/chosen_job.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/system/descriptor.hpp"
#include "launcher/commands/terminal_page.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/hosts/run_on_hosts.hpp"
#include "launcher/submit/slurm/slurm_login.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string padded(std::string text, std::size_t width) {
  const std::size_t shown = characters_in(text);
  if (shown < width) text.append(width - shown, ' ');
  return text + "  ";
}

// Formats the rows as a table. The first row is the header. Columns are as wide as their widest entry; the last column is not
// padded.
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

// Returns true if `has` is true for at least one worker.
bool has_any(const std::vector<json>& nodes, const std::function<bool(const json& worker)>& has) {
  return std::ranges::any_of(nodes, [&](const json& node) {
    const json workers = node.value("workers", json::array());
    return std::ranges::any_of(workers, [&](const json& worker) { return worker.is_object() && has(worker); });
  });
}

struct Columns {
  bool paces = false;  // true if a worker has reported its step times
  bool gpus = false;
};

std::vector<std::string> row_of(const json& worker, Columns columns) {
  const WorkerTexts texts = worker_texts(worker);
  std::vector<std::string> row{texts.rank, texts.pid, texts.state, texts.step, texts.silent, texts.memory};
  if (columns.paces) row.insert(row.end() - 1, {texts.own, texts.waiting});
  if (columns.gpus) row.push_back(texts.gpu);
  return row;
}

bool is_match(const RunningJob& job, const std::string& word) {
  if (word == std::to_string(job.agent)) return true;
  if (job.status.is_null()) return false;
  if (word == text_of(job.status, "title")) return true;
  std::error_code error;
  const std::string run_dir = job.status.value("run_dir", "");
  return !run_dir.empty() && fs::equivalent(word, run_dir, error) && !error;
}

// Returns true if all agents belong to one job. This holds if they use the same run directory, because only one job at a time
// can lock it.
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

RunningJob chosen_job(const std::string& word, Agents agents) {
  std::vector<RunningJob> jobs = running_jobs();
  if (jobs.empty())
    throw UsageError(
        "none of your jobs is running on this machine; for a job that has ended, use ddprun report FOLDER or ddprun logs "
        "FOLDER");
  std::vector<RunningJob> matches;
  for (const RunningJob& job : jobs) {
    if (word.empty() || is_match(job, word)) matches.push_back(job);
  }
  if (matches.size() == 1 && matches.front().status.is_null()) {
    throw UsageError("the job of process " + std::to_string(matches.front().agent) +
                     " does not answer: it may be suspended (Ctrl-Z), starting or ending; try again in a few seconds");
  }
  if (matches.size() == 1) return matches.front();
  const bool one_job = are_of_one_job(matches);
  if (one_job && agents == Agents::kAnyOfTheJob) {
    const auto leads = [](const RunningJob& job) { return job.status.value("leads", false); };
    const auto leader = std::ranges::find_if(matches, leads);
    return leader == matches.end() ? matches.front() : *leader;
  }
  const std::string which = matches.empty() ? "no running job on this machine has the PID, run directory or title '" + word +
                                                  "'; the running jobs are:"
                            : one_job ? "several ddprun processes of the same job run on this machine: select one by its PID"
                                      : "several jobs run on this machine: select one by its PID or run directory";
  throw UsageError(which + "\n" + table_of(jobs));
}

std::optional<int> answer_of_slurm_job(const SubcommandArguments& arguments, const std::string& subcommand) {
  const auto job = arguments.value("--slurm", "the id of a Slurm job or a run directory");
  if (!job) return std::nullopt;
  arguments.refuse_words();
  return run_in_slurm_job(*job, subcommand, arguments.option_words("--slurm"));
}

void answer_on_first_host(const SubcommandArguments& arguments, const std::string& subcommand) {
  const auto hosts = arguments.value("--hosts", "the hosts of a job, such as a,b");
  if (!hosts) return;
  arguments.refuse_both("--hosts", "--slurm");
  std::vector<std::string> words{subcommand};
  for (std::string& option : arguments.option_words("--hosts")) words.push_back(std::move(option));
  // ssh starts in the user's home directory, where a relative path would not be found. So an existing path is passed as an
  // absolute path.
  if (const std::string job = arguments.only_word("JOB"); !job.empty()) {
    std::error_code error;
    words.push_back(fs::exists(job, error) ? fs::absolute(job, error).string() : job);
  }
  run_on_first_host(*hosts, words);
}

bool queries_all_nodes(const RunningJob& job, const JobRequest& request) {
  return !request.has("--here") && job.status.is_object() && job.status.value("several_nodes", false);
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

std::string status_text(const RunningJob& job, const std::vector<json>& nodes) {
  const json& status = job.status;
  const bool several = nodes.size() > 1 || status.value("several_nodes", false);
  std::string text = text_of(status, "title") + " (process " + std::to_string(job.agent) + "): " + job_state_text(status);
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
  const Columns columns{
      .paces = has_any(nodes, [](const json& worker) { return worker.contains("own_s") && worker["own_s"].is_number(); }),
      .gpus = has_any(nodes, [](const json& worker) { return !worker_texts(worker).gpu.empty(); })};
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

std::string status_of_all(const RunningJob& job, const ClusterAnswers& nodes) {
  return status_text(job, nodes.answers.empty() ? std::vector<json>{job.status} : nodes.answers);
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
  const Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (pidfd.get() < 0) return true;
  pollfd ended{pidfd.get(), POLLIN, 0};
  int ready = 0;
  while ((ready = ::poll(&ended, 1, static_cast<int>(time.count()))) < 0 && errno == EINTR) {
  }
  return ready > 0;
}

}  // namespace ddprun
