#include "launcher/submit/slurm/slurm_submission.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/checkpoint_list.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/shared_folder/others_link.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/print.hpp"
#include "common/system/write_all.hpp"
#include "launcher/custom_worker/custom_worker.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/parse_number.hpp"
#include "launcher/submit/slurm/requeue_record.hpp"
#include "launcher/submit/slurm/slurm_commands.hpp"
#include "launcher/submit/slurm/slurm_job.hpp"
#include "launcher/submit/slurm/slurm_request.hpp"
#include "launcher/submit/slurm/slurm_time.hpp"
#include "rendezvous/identity/token_file.hpp"
#include "rendezvous/identity/token_search.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

void log_line(const std::string& text) {
  write_all(STDERR_FILENO, "ddprun: " + text + "\n");
}

// Returns the text of a file in the run directory, or "" if the file does not exist or cannot be read. The callers can
// continue without these files.
std::string optional_text(const fs::path& file) {
  constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return "";
  try {
    return read_bounded(file, kMaxBytes, "a file of the run");
  } catch (const UsageError&) {
    return "";
  }
}

std::int64_t newest_step_in(const RunLayout& layout) {
  const std::vector<fs::path> checkpoints = published_checkpoints(layout);
  if (checkpoints.empty()) return -1;
  return parse_whole(checkpoints.front().filename().string().substr(std::string_view("step-").size())).value_or(-1);
}

// ---- submit ----

bool has_word(const std::vector<std::string>& options, std::string_view name) {
  return std::ranges::find(options, name) != options.end();
}

bool is_program_by_option(const SubmitWords& words) {
  return has_word(words.launcher, "--module") || has_word(words.launcher, "--no-python") ||
         has_word(words.launcher, "--run-path");
}

std::string name_of_config(const SubmitWords& words, const Settings& settings) {
  std::optional<NamedWorker> worker;
  if (const Setting* named = settings.find("worker")) worker = {named->value, named->source};
  // In a job array, the config is checked with the index of the first task: 1 for "1-8%2".
  const std::string array = words.value("array").value_or("");
  const std::string first_index = array.substr(0, array.find_first_not_of("0123456789"));
  std::vector<std::string> overrides;
  for (std::size_t i = 1; i < words.program.size(); ++i)
    overrides.push_back(first_index.empty() ? words.program[i] : with_array_index(words.program[i], first_index));
  return load_config(words.program.front(), overrides, nullptr,
                     [&](const std::string& by_config) {
                       const auto custom = find_custom_worker(worker, by_config, this_machine(), fs::current_path());
                       return custom ? TaskConfig(custom->description.keys) : TaskConfig();
                     })
      .name;
}

// Returns the default name of the job and of its run directory. Checks the program's name or the config now, because the job
// may wait for a day in the queue before it starts. Throws UsageError.
std::string default_name(const SubmitWords& words, const Settings& settings) {
  const fs::path program = words.program.front();
  if (has_word(words.launcher, "--module")) return program.string();
  if (!is_program_by_option(words) && program.extension() == ".json") return name_of_config(words, settings);
  std::error_code error;
  if (!has_word(words.launcher, "--no-python") && !fs::exists(program, error) && !find_on_path(program.string())) {
    throw UsageError("the program " + printable(program.string()) + " does not exist in " + fs::current_path().string() +
                     ": correct its name, or use --no-python for a program that exists only on the compute nodes");
  }
  return program.stem().string();
}

// Returns the launcher's own settings: options of this command line and DDPRUN_* variables. Throws UsageError for a wrong
// type.
Settings settings_of(const SubmitWords& words) {
  std::vector<std::string> options = words.launcher;
  for (const char* name : {"run-dir", "token-file", "shutdown-timeout"}) {
    if (const auto value = words.value(name)) options.push_back("--" + std::string(name) + "=" + *value);
  }
  return Settings(options, process_environment());
}

// The batch file always contains these options, so values of variables such as DDPRUN_RUN_DIR must become options too.
void add_settings(SubmitWords& words, const Settings& settings) {
  for (const char* name : {"run-dir", "token-file", "shutdown-timeout"}) {
    if (!words.has(name) && settings.given(name)) words.own.push_back({name, settings.text(name)});
  }
}

void check_times(const SlurmRequest& request) {
  SlurmTimes times{.limit = parse_slurm_time(request.time),
                   .signal_before = request.signal_before,
                   .shutdown_s = parse_decimal(request.shutdown_timeout).value_or(0),
                   .save_s = parse_reported_run(optional_text(RunLayout{request.run_dir}.report()), std::nullopt).save_s};
  if (const std::string problem = time_problem(times); !problem.empty()) throw UsageError(problem);
  if (const std::string warning = time_warning(times); !warning.empty()) log_line("warning: " + warning);
}

// An existing file with another text may contain a user's changes, so it is kept under a new name.
void keep_older_file(const fs::path& file) {
  constexpr int kMaxKept = 10'000;
  std::error_code error;
  for (int number = 1; number <= kMaxKept; ++number) {
    const fs::path kept = file.string() + "." + std::to_string(number);
    if (fs::exists(fs::symlink_status(kept, error))) continue;
    fs::rename(file, kept);
    log_line("the earlier batch file is kept as " + kept.string());
    return;
  }
  throw UsageError("cannot keep the earlier batch file " + file.string() + ": all names up to ." + std::to_string(kMaxKept) +
                   " are taken; remove old files");
}

void write_batch_file(const fs::path& file, const std::string& text) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(file, error))) {
    if (optional_text(file) == text) return;
    keep_older_file(file);
  }
  write_file_atomically(file, text);
}

// Creates RUN_DIR/token, or checks the file that the user has named.
void prepare_token(const SlurmRequest& request) {
  if (take_token_variable())
    log_line("note: DDPRUN_TOKEN is not passed to Slurm" +
             (request.token_file.empty() ? std::string() : "; the agents use the token in " + request.token_file.string()));
  if (request.token_file.empty()) return;
  if (request.token_file == request.run_dir / "token") {
    TokenSources sources;
    sources.run_dir = request.run_dir;
    sources.user_file = token_file_of_user();
    find_token(std::move(sources));
  } else {
    read_token_file(request.token_file);
  }
}

// The first decision about a requeue compares the run's progress with this record. Without this record, the checkpoints of an
// earlier job would count as progress of this job.
void write_first_record(const fs::path& run_dir) {
  const fs::path file = requeue_file(run_dir);
  std::error_code error;
  if (fs::exists(file, error)) return;
  const RunLayout layout{run_dir};
  RequeueRecord record;
  record.published = parse_reported_run(optional_text(layout.report()), std::nullopt).published;
  record.newest_step = newest_step_in(layout);
  write_file_atomically(file, requeue_text(record));
}

}  // namespace

int submit_to_slurm(SubmitWords words) {
  if (words.program.empty()) throw UsageError(kNothingToRun);
  const Settings settings = settings_of(words);
  add_settings(words, settings);
  const SlurmRequest request = slurm_request(
      words, {.ddprun = path_of_this_program(), .folder = fs::current_path(), .default_name = default_name(words, settings)});
  check_times(request);
  const std::string text = slurm_batch_text(request);
  if (words.has("dry-run")) {
    print(text);
    return 0;
  }
  const fs::path file = slurm_batch_file(request.run_dir);
  make_durable_folder(slurm_folder(request.run_dir));
  refuse_others_links(request.run_dir);
  refuse_others_links(slurm_folder(request.run_dir));
  prepare_token(request);
  write_batch_file(file, text);
  if (request.array.empty()) write_first_record(request.run_dir);
  const SlurmAnswer answer = run_slurm({"sbatch", "--parsable", file.string()});
  const auto job = answer.succeeded ? parse_sbatch(answer.text) : std::nullopt;
  if (!job) {
    throw UsageError((answer.succeeded ? "sbatch printed no job id" : answer.problem) + "; the batch file is " + file.string() +
                     ": correct the option, and run the command again");
  }
  write_file_atomically(slurm_job_file(request.run_dir), *job + "\n");
  print("submitted Slurm job " + *job + ": " + file.string() + "\n");
  log_line("ddprun status --slurm " + *job + " shows the job, ddprun stop --slurm " + *job + " saves and stops it");
  return 0;
}

// ---- after the agents have ended ----

namespace {

// Returns the seconds until the job's time limit, from SLURM_JOB_END_TIME; nullopt if Slurm does not set it (22.05 does not).
std::optional<double> seconds_left_by_variable(const Environment& environment) {
  const auto end = parse_whole(environment("SLURM_JOB_END_TIME").value_or(""));
  return end ? std::optional(static_cast<double>(*end - std::time(nullptr))) : std::nullopt;
}

SlurmJobState state_of(const std::string& job, const Environment& environment) {
  const SlurmAnswer answer = run_slurm({"scontrol", "show", "job", "-o", job});
  SlurmJobState state = answer.succeeded ? parse_scontrol_job(answer.text) : SlurmJobState();
  if (!state.seconds_left) state.seconds_left = seconds_left_by_variable(environment);
  return state;
}

// Returns false if the file cannot be written.
bool keep_record(const fs::path& run_dir, const RequeueRecord& record) {
  try {
    make_durable_folder(run_dir);
    write_file_atomically(requeue_file(run_dir), requeue_text(record));
    return true;
  } catch (const std::system_error& error) {
    log_line("the numbers of requeues cannot be written to " + requeue_file(run_dir).string() + ": " + error.what());
    return false;
  }
}

}  // namespace

int decide_after_slurm_job(const SubmitWords& words) {
  const AfterRequest request = after_request(words, fs::current_path());
  const Environment environment = process_environment();
  const auto job = slurm_job_of(environment);
  if (!job) throw UsageError("ddprun submit --after works only in a Slurm batch script: SLURM_JOB_ID is not set");
  const int restarts = static_cast<int>(parse_whole(environment("SLURM_RESTART_COUNT").value_or("")).value_or(0));
  const RunLayout layout{request.run_dir};
  const ReportedRun run = parse_reported_run(optional_text(layout.report()), SlurmStartId{*job, restarts});
  std::error_code ignored;
  // srun returns the highest exit code of all nodes. The report contains the exit code of the whole job, so after a failure
  // that code is used if it is known.
  StartEnd end{.job = "slurm " + *job,
               .code = request.code == 0 ? 0 : run.exit_code.value_or(request.code),
               .is_workers_code = run.is_workers_code,
               .of_script = !fs::exists(layout.config(), ignored),
               .seconds_left = std::nullopt,
               .signal_before_s = static_cast<double>(request.signal_before.count()),
               .published = run.published,
               .newest_step = newest_step_in(layout)};
  if (end.code != 0) {
    const SlurmJobState state = state_of(*job, environment);
    end.requeue_allowed = state.requeue_allowed;
    end.seconds_left = state.seconds_left;
  }
  const RequeueRecord before = parse_requeue_record(optional_text(requeue_file(request.run_dir)));
  const RequeueDecision decision =
      decide_requeue(before, end, {.failures = request.max_failures, .timeouts = request.max_timeouts});
  // The record is written first, because `scontrol requeue` kills this process.
  const bool kept = keep_record(request.run_dir, decision.record);
  if (!decision.requeue) {
    if (end.code != 0) log_line("Slurm job " + *job + ": " + decision.why);
    return decision.exit_code;
  }
  if (!kept && decision.uses_budget) {
    log_line("Slurm job " + *job + ": " + decision.why + "; the job ends, since this requeue cannot be counted");
    return final_code(end.code, ExitCode::kBudgetSpent);
  }
  log_line("Slurm job " + *job + ": " + decision.why + "; the job returns to the queue");
  const SlurmAnswer answer = run_slurm({"scontrol", "requeue", *job});
  if (answer.succeeded) return request.code;
  log_line(answer.problem + "; the batch script ends with exit code " + std::to_string(kRequeueExitCode) +
           ", which requeues the job if slurm.conf contains RequeueExit=" + std::to_string(kRequeueExitCode) +
           "; otherwise submit the batch file again with sbatch, and the job resumes");
  return kRequeueExitCode;
}

}  // namespace ddprun
