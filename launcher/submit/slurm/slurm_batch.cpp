#include "launcher/submit/slurm/slurm_batch.hpp"

#include <algorithm>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "launcher/options/shell_quoted.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kArrayIndex = "%a";
constexpr const char* kNextLine = " \\\n  ";

bool is_plain(std::string_view value) {
  return !value.empty() && std::ranges::all_of(value, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_@%+=:,./-[]").find(c) != std::string_view::npos;
  });
}

std::string sbatch_line(const std::string& option, const std::string& value) {
  return value.empty() ? "" : "#SBATCH --" + option + "=" + sbatch_value(value, ("--" + option).c_str()) + "\n";
}

// Returns the name of a file for an #SBATCH line. A percent sign is written twice, since it starts a pattern. A backslash is
// refused, since it would turn off patterns in the whole name.
std::string file_pattern(const fs::path& folder, const std::string& pattern) {
  std::string name;
  for (const char c : folder.string()) {
    if (c == '\\')
      throw UsageError("the run directory " + printable(folder.string()) +
                       " contains a backslash, which sbatch cannot use in the name of a log file: choose another "
                       "--run-dir");
    name += c == '%' ? std::string("%%") : std::string(1, c);
  }
  return name + "/" + pattern;
}

std::string node_count(const SlurmRequest& request) {
  const auto with_spares = [&](int nodes) { return std::to_string(nodes + request.spares); };
  if (request.min_nodes == request.max_nodes) return with_spares(request.max_nodes);
  return with_spares(request.min_nodes) + "-" + with_spares(request.max_nodes);
}

// Returns the option --nnodes of the agents. If it is not given, the agents use all nodes of the step, and wait until a lost
// node returns.
std::string nnodes_option(const SlurmRequest& request) {
  if (request.min_nodes == request.max_nodes && request.spares == 0) return "";
  const std::string spares =
      request.spares == 0 ? "$SLURM_JOB_NUM_NODES" : "$((SLURM_JOB_NUM_NODES - " + std::to_string(request.spares) + "))";
  if (request.min_nodes == request.max_nodes) return "--nnodes " + std::to_string(request.max_nodes);
  return "--nnodes \"" + std::to_string(request.min_nodes) + ":" + spares + "\"";
}

std::string header(const SlurmRequest& request) {
  const bool array = !request.array.empty();
  std::string text =
      "#!/bin/bash\n"
      "# Written by ddprun submit for " +
      printable(request.program.front()) + ". You may change this file and submit it with sbatch.\n\n";
  text += sbatch_line("job-name", request.job_name);
  text += sbatch_line("chdir", request.folder.string());
  text += sbatch_line("array", request.array);
  text += "# Slurm starts one agent on each node, and the agent starts the workers of its node.\n";
  text += sbatch_line("nodes", node_count(request));
  text += "#SBATCH --ntasks-per-node=1\n";
  if (request.cpus_per_task > 0) text += sbatch_line("cpus-per-task", std::to_string(request.cpus_per_task));
  text += sbatch_line("gpus-per-node", request.gpus);
  text += sbatch_line("partition", request.partition);
  text += sbatch_line("account", request.account);
  text += sbatch_line("qos", request.qos);
  text += sbatch_line("time", request.time);
  for (const std::string& option : request.sbatch) text += "#SBATCH --" + option + "\n";
  text += "# Slurm sends SIGTERM to the agents this many seconds before the time limit, so that the job saves.\n";
  text += "#SBATCH --signal=TERM@" + std::to_string(request.signal_before.count()) + "\n";
  text += "# The job may return to the queue. It continues if Slurm loses one of its nodes.\n";
  text += "#SBATCH --requeue\n#SBATCH --no-kill\n";
  text += "# All starts of the job append to the same log file.\n";
  text += "#SBATCH --open-mode=append\n";
  text += "#SBATCH --output=" +
          sbatch_value(file_pattern(slurm_folder(request.run_dir), array ? "%A_%a.out" : "%j.out"), "--run-dir") + "\n";
  return text;
}

std::string start_of_agents(const SlurmRequest& request) {
  const bool array = !request.array.empty();
  std::string text = "srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0";
  // Since Slurm 22.05, a step no longer inherits the number of CPUs from its job.
  if (request.cpus_per_task > 0) text += " --cpus-per-task=" + std::to_string(request.cpus_per_task);
  text += kNextLine + shell_quoted(request.ddprun.string()) + " --run-dir \"$run_dir\" --shutdown-timeout " +
          shell_quoted(request.shutdown_timeout);
  if (!request.token_file.empty()) text += kNextLine + ("--token-file " + shell_quoted(request.token_file.string()));
  if (const std::string nodes = nnodes_option(request); !nodes.empty()) text += kNextLine + nodes;
  for (const std::string& option : request.options) text += kNextLine + bash_word(option, array);
  text += kNextLine + std::string(request.program.front().starts_with('-') ? "-- " : "");
  for (std::size_t i = 0; i < request.program.size(); ++i) text += (i == 0 ? "" : " ") + bash_word(request.program[i], array);
  return text;
}

}  // namespace

fs::path slurm_folder(const fs::path& run_dir) {
  return run_dir / "slurm";
}

fs::path slurm_batch_file(const fs::path& run_dir) {
  return slurm_folder(run_dir) / "submit.sbatch";
}

fs::path slurm_job_file(const fs::path& run_dir) {
  return slurm_folder(run_dir) / "job";
}

fs::path array_run_dir(const fs::path& run_dir, const std::string& task) {
  return run_dir / ("task-" + task);
}

std::string bash_word(const std::string& word, bool array) {
  if (!array || word.find(kArrayIndex) == std::string::npos) return shell_quoted(word);
  std::string quoted;
  for (std::size_t from = 0; from <= word.size();) {
    const std::size_t at = std::min(word.find(kArrayIndex, from), word.size());
    if (at > from) quoted += shell_quoted(word.substr(from, at - from));
    if (at == word.size()) break;
    quoted += "\"$SLURM_ARRAY_TASK_ID\"";
    from = at + kArrayIndex.size();
  }
  return quoted;
}

std::string with_array_index(std::string word, const std::string& index) {
  for (std::size_t at = 0; (at = word.find(kArrayIndex, at)) != std::string::npos; at += index.size())
    word.replace(at, kArrayIndex.size(), index);
  return word;
}

std::string sbatch_value(const std::string& value, const char* what) {
  if (std::ranges::any_of(value, [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
    throw UsageError(std::string(what) + ": '" + printable(value) +
                     "' contains a newline or another control character, which sbatch cannot read: use a value without it");
  }
  if (is_plain(value)) return value;
  std::string quoted = "\"";
  for (const char c : value) quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted + "\"";
}

std::string slurm_batch_text(const SlurmRequest& request) {
  const bool array = !request.array.empty();
  const std::string ddprun = shell_quoted(request.ddprun.string());
  std::string text = header(request);
  text += "\nrun_dir=" + shell_quoted(request.run_dir.string());
  if (array) text += "/task-\"$SLURM_ARRAY_TASK_ID\"";
  text +=
      "\n\n"
      "# The agents read the nodes and ports of this job from Slurm. If one agent ends, the others continue.\n"
      "code=0\n";
  text += start_of_agents(request) + " || code=$?\n\n";
  text += "# Returns the job to the queue after a preemption or a time limit, and after at most " +
          std::to_string(request.max_failures) + " failures.\n";
  text += "exec " + ddprun + " submit --slurm --after \"$code\" --run-dir \"$run_dir\"" + kNextLine + "--signal-before " +
          std::to_string(request.signal_before.count()) + " --max-failures " + std::to_string(request.max_failures) +
          " --max-timeouts " + std::to_string(request.max_timeouts) + "\n";
  return text;
}

}  // namespace ddprun
