// ddprun: parse, plan, run. Everything that can be refused is refused here, before anything is started; run_agent() does the
// rest. Errors end as one line "ddprun: ..." on stderr and the exit code of their type (docs/exit-codes.md).
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/run_directory.hpp"
#include "common/run_lock.hpp"
#include "common/version.hpp"
#include "launcher/agent.hpp"
#include "launcher/console.hpp"
#include "launcher/detect.hpp"
#include "launcher/dry_run.hpp"
#include "launcher/options.hpp"
#include "launcher/plan.hpp"
#include "launcher/report.hpp"
#include "launcher/report_summary.hpp"
#include "launcher/subcommand.hpp"
#include "launcher/worker_environment.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

int run_plan(const Plan& plan, const AgentFiles& files, ConsoleFacts facts) {
  std::unique_ptr<Report> report;
  if (!files.report.empty()) {
    report = std::make_unique<Report>(files.report, ReportFacts{.title = plan.title,
                                                                .run_dir = plan.run_dir.string(),
                                                                .command = plan.command,
                                                                .restart_budget = plan.max_restarts,
                                                                .refilled_by_progress = plan.refill_by_progress,
                                                                .synced = !plan.run_dir.empty()});
    if (!report->warning().empty()) facts.opening.push_back("note: " + report->warning());
  }
  facts.report = files.report;
  return run_agent(plan, files, [&](boost::asio::io_context&, ConsoleWriter& writer) {
    std::vector<std::unique_ptr<RunObserver>> observers;
    observers.push_back(std::make_unique<Console>(plan, std::move(facts), writer));
    if (report) observers.push_back(std::move(report));
    return observers;
  });
}

bool has_checkpoints(const Plan& plan) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(RunLayout{plan.run_dir}.checkpoints(), ignored)) {
    if (entry.path().filename().string().starts_with("step-")) return true;
  }
  return false;
}

// --resume never over checkpoints would let two histories grow in one folder.
void refuse_to_mix(const Plan& plan) {
  if (plan.resume != Plan::Resume::kNever || plan.fresh || !has_checkpoints(plan)) return;
  throw UsageError(
      "--resume never, but " + plan.run_dir.string() +
      " has checkpoints of an earlier run. --fresh renames the folder and starts over; --run-dir takes another one");
}

int run_training(const Plan& plan) {
  refuse_to_mix(plan);
  const RunState state = open_run_directory(plan.run_dir, *plan.config, plan.fresh ? FreshStart::kRename : FreshStart::kNo);
  if (state.finished && plan.resume == Plan::Resume::kAuto) {
    print(already_done(plan, state));
    return 0;
  }
  ConsoleFacts facts;
  if (!state.renamed_to.empty()) facts.opening.push_back("the earlier run is kept as " + state.renamed_to);
  if (state.latest_step && plan.resume == Plan::Resume::kAuto) {
    facts.opening.push_back("resuming: the newest checkpoint is of step " + std::to_string(*state.latest_step));
  }
  if (plan.resume == Plan::Resume::kAuto && state.resumed && !has_checkpoints(plan)) {
    facts.opening.push_back("note: no checkpoint of the earlier start is there; training begins again from step 0");
  }
  std::string_view notes = state.notes;
  while (!notes.empty()) {
    const std::size_t end = notes.find('\n');
    if (end != 0) facts.opening.push_back("note: " + std::string(notes.substr(0, end)));
    notes.remove_prefix(end == std::string_view::npos ? notes.size() : end + 1);
  }
  const int exit_code = run_plan(plan, {state.lock_fd, plan.run_dir / "logs", state.layout.report()}, std::move(facts));
  ::close(state.lock_fd);
  return exit_code;
}

// A script's run directory has logs and a report; two jobs must not share it.
int lock_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError("cannot make the run directory " + folder.string() + ": " + error.message());
  return take_run_lock(folder);
}

// A folder of its own, like torchrun's: `parent`/ddprun_<random>.
fs::path make_log_folder(const fs::path& parent, const std::string& stem) {
  std::error_code error;
  fs::create_directories(parent, error);
  std::string name = (parent / (stem + "_XXXXXX")).string();
  if (error || ::mkdtemp(name.data()) == nullptr) {
    throw UsageError("cannot make a folder for logs in " + parent.string() + ": " +
                     (error ? error.message() : std::strerror(errno)));
  }
  return name;
}

int run_script(const Plan& plan) {
  if (!plan.run_dir.empty()) {
    const int lock_fd = lock_folder(plan.run_dir);
    const int exit_code =
        run_plan(plan,
                 {lock_fd, plan.log_dir.empty() ? plan.run_dir / "logs" : make_log_folder(plan.log_dir, plan.run_id),
                  RunLayout{plan.run_dir}.report()},
                 {});
    ::close(lock_fd);
    return exit_code;
  }
  const bool temporary = plan.log_dir.empty();
  const char* tmp = std::getenv("TMPDIR");
  const fs::path folder = temporary ? make_log_folder(tmp != nullptr && *tmp != '\0' ? tmp : "/tmp", "ddprun")
                                    : make_log_folder(plan.log_dir, plan.run_id);
  const int exit_code = run_plan(plan, {-1, folder, folder / "report.json"}, {});
  if (temporary && exit_code == 0) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);  // nothing failed, so nobody needs the report
  }
  return exit_code;
}

fs::path current_folder() {
  std::error_code error;
  fs::path folder = fs::current_path(error);
  if (error) throw UsageError("the current folder cannot be used: " + error.message() + "; cd to one that exists");
  return folder;
}

int run(const std::vector<std::string>& args) {
  if (const auto exit_code = run_subcommand(args)) return *exit_code;
  const Environment environment = process_environment();
  const Arguments arguments = parse_arguments(args, environment);
  if (arguments.settings.flag("help")) {
    print(help_text());
    return 0;
  }
  if (arguments.settings.flag("version")) {
    print(std::string("ddprun ") + kVersion + "\n");
    return 0;
  }
  const Plan plan = make_plan(arguments, this_machine(), environment, current_folder());
  if (plan.dry_run) {
    const VariableList variables = environment_of_rank_0(plan, environment_of_this_process());
    print(plan.json ? dry_run_json(plan, variables) : dry_run_text(plan, variables));
    return 0;
  }
  return plan.kind == Plan::Kind::kTrain ? run_training(plan) : run_script(plan);
}

// A descriptor below 3 that we open ourselves (the lock, the guardian's socket) would be taken for the console.
void open_missing_standard_streams() {
  int fd = 0;
  do fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) ::close(fd);
}

void complain(const std::string& message) {
  const std::string line = "ddprun: " + message + "\n";
  [[maybe_unused]] const ssize_t count = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  ddprun::open_missing_standard_streams();
  ::signal(SIGPIPE, SIG_IGN);  // a console that goes away must not end a job
  try {
    return ddprun::run({argv + 1, argv + argc});
  } catch (const ddprun::Error& error) {
    ddprun::complain(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    ddprun::complain(error.what());
    return static_cast<int>(ddprun::ExitCode::kInternal);
  }
}
