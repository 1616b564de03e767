#include "launcher/submit/slurm/slurm_login.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/system/print.hpp"
#include "launcher/submit/slurm/slurm_batch.hpp"
#include "launcher/submit/slurm/slurm_commands.hpp"
#include "launcher/submit/slurm/slurm_job.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTaskFolder = "task-";

std::string job_in_file(const fs::path& run_dir) {
  constexpr std::size_t kMaxBytes = 64;
  std::string job = read_bounded(slurm_job_file(run_dir), kMaxBytes, "the id of a Slurm job");
  job = job.substr(0, job.find('\n'));
  if (!is_slurm_job(job))
    throw UsageError(slurm_job_file(run_dir).string() + " contains no Slurm job id: name the job by its id");
  return job;
}

// Returns the id of the job that uses a run directory. For the folder of an array task, such as runs/a/task-3, the file with
// the id is in the folder above.
std::string job_of_run_dir(const fs::path& run_dir) {
  std::error_code error;
  const std::string name = run_dir.filename().string();
  if (name.starts_with(kTaskFolder) && fs::exists(slurm_job_file(run_dir.parent_path()), error))
    return job_in_file(run_dir.parent_path()) + "_" + name.substr(kTaskFolder.size());
  if (fs::exists(slurm_job_file(run_dir), error)) return job_in_file(run_dir);
  throw UsageError(
      printable(run_dir.string()) +
      " is neither the id of a Slurm job nor a run directory of ddprun submit --slurm: use an id that squeue shows");
}

// Returns the run directory of a job that ddprun submit has submitted; empty for any other job.
fs::path run_dir_of(const QueuedJob& job) {
  const fs::path run_dir = fs::path(job.command).parent_path().parent_path();
  if (run_dir.empty() || slurm_batch_file(run_dir) != job.command) return {};
  const std::size_t task = job.id.find('_');
  return task == std::string::npos ? run_dir : array_run_dir(run_dir, job.id.substr(task + 1));
}

// `subcommand` is status, logs or stop. It changes only the text of errors.
QueuedJob find_job(const std::string& id, const std::string& subcommand) {
  const SlurmAnswer answer = run_slurm({"squeue", "--noheader", "--jobs", id, "--format", kSqueueFormat});
  const bool unknown = !answer.succeeded && answer.problem.find("Invalid job id") != std::string::npos;
  if (!answer.succeeded && !unknown) {
    throw UsageError(answer.problem + (subcommand == "stop" ? "; the job was not stopped" : "; the job's state is unknown") +
                     ": try again in some seconds");
  }
  const std::vector<QueuedJob> jobs = parse_squeue(answer.text);
  if (jobs.empty())
    throw UsageError("Slurm job " + id +
                     " is not in the queue, because the job has ended or never existed. For a job that has ended, use ddprun "
                     "report RUN_DIR");
  if (jobs.size() == 1) return jobs.front();
  std::string tasks;
  constexpr std::size_t kMaxShown = 20;
  for (std::size_t i = 0; i < jobs.size() && i < kMaxShown; ++i) tasks += (i == 0 ? "" : ", ") + jobs[i].id;
  throw UsageError("Slurm job " + id + " is an array: name one of its tasks: " + tasks +
                   (jobs.size() > kMaxShown ? ", ..." : ""));
}

std::string state_with_reason(const QueuedJob& job) {
  return job.state + (job.reason.empty() || job.reason == "None" ? "" : " (" + job.reason + ")");
}

std::string state_text(const QueuedJob& job) {
  return "Slurm job " + job.id + " is " + state_with_reason(job);
}

int answer_for_waiting_job(const QueuedJob& job, const std::string& subcommand, const fs::path& run_dir) {
  const std::string text = state_text(job);
  if (subcommand == "stop") {
    const SlurmAnswer answer = run_slurm({"scancel", job.id});
    if (!answer.succeeded) throw UsageError(answer.problem + "; " + text);
    print("cancelled Slurm job " + job.id + ", which was " + state_with_reason(job) +
          "; to resume the run, use ddprun submit with the same run directory\n");
    return 0;
  }
  if (subcommand == "logs")
    throw UsageError(text + ", so its agents do not run" +
                     (run_dir.empty() ? "" : ": ddprun logs " + run_dir.string() + " shows the log files of earlier starts"));
  print(text + "\n" + (run_dir.empty() ? "" : "run directory " + run_dir.string() + "\n"));
  return 0;
}

[[noreturn]] void become(std::vector<std::string> command) {
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  throw UsageError(command.front() + " could not be started: " + std::strerror(errno) +
                   "; run this command on a machine with the Slurm commands");
}

}  // namespace

int run_in_slurm_job(const std::string& word, const std::string& subcommand, const std::vector<std::string>& options) {
  const bool is_id = is_slurm_job(word);
  const fs::path given = is_id ? fs::path() : fs::absolute(word).lexically_normal();
  const fs::path named = given.has_filename() ? given : given.parent_path();
  const QueuedJob job = find_job(is_id ? word : job_of_run_dir(named), subcommand);
  const fs::path run_dir = is_id ? run_dir_of(job) : named;
  const bool stops_one_node =
      std::ranges::any_of(options, [](const std::string& option) { return option.starts_with("--node="); });
  if (stops_one_node && job.state != "RUNNING") throw UsageError(state_text(job) + ", so it has no node that could be stopped");
  if (job.state != "RUNNING") return answer_for_waiting_job(job, subcommand, run_dir);
  if (subcommand == "stop" && !stops_one_node) {
    // Without Requeue=0, the batch script would requeue the job, as after a preemption.
    const SlurmAnswer answer = run_slurm({"scontrol", "update", "JobId=" + job.id, "Requeue=0"});
    if (!answer.succeeded) throw UsageError(answer.problem + "; Slurm job " + job.id + " was not stopped");
  }
  std::vector<std::string> command{"srun",    "--jobid=" + job.number, "--overlap", "--nodes=1", "--ntasks=1", "--input=none",
                                   "--quiet", path_of_this_program(),  subcommand};
  if (!run_dir.empty()) command.push_back(run_dir.string());
  command.insert(command.end(), options.begin(), options.end());
  become(std::move(command));
}

}  // namespace ddprun
