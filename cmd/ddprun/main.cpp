// ddprun: parse, plan, run. Everything that can be refused is refused here, before anything is started; run_agent() does the
// rest. Errors end as one line "ddprun: ..." on stderr and the exit code of their type (docs/exit-codes.md).
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/base/version.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/run_directory/run_lock.hpp"
#include "common/system/atomic_file.hpp"
#include "launcher/agent/agent.hpp"
#include "launcher/commands/dry_run.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/network/join_job.hpp"
#include "launcher/network/network_start.hpp"
#include "launcher/options/completion.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/options_torchrun.hpp"
#include "launcher/options/scheduler.hpp"
#include "launcher/output/console.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/plan/torchrun_name.hpp"
#include "launcher/report/report.hpp"
#include "launcher/report/report_summary.hpp"
#include "launcher/start/script_folders.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "rendezvous/identity/token.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

int run_plan(const Plan& plan, const AgentFiles& files, ConsoleFacts facts, std::optional<NetworkStart> network,
             ReportFacts::Kept kept = ReportFacts::Kept::kAlways, const AtEnd& at_end = {}) {
  std::unique_ptr<Report> report;
  if (!files.report.empty()) {
    report = std::make_unique<Report>(files.report, ReportFacts{.title = plan.title,
                                                                .run_dir = plan.run_dir.string(),
                                                                .command = plan.command,
                                                                .restart_budget = plan.max_restarts,
                                                                .refilled_by_progress = plan.refill_by_progress,
                                                                .synced = !plan.run_dir.empty(),
                                                                .kept = kept});
    if (!report->warning().empty()) facts.opening.push_back("note: " + report->warning());
  }
  facts.report = files.report;
  const MakeObservers make_observers = [&](boost::asio::io_context&, ConsoleWriter& writer) {
    std::vector<std::unique_ptr<RunObserver>> observers;
    observers.push_back(std::make_unique<Console>(plan, std::move(facts), writer));
    if (report) observers.push_back(std::move(report));
    return observers;
  };
  return run_agent(plan, files, make_observers, std::move(network), at_end);
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

// Before anything is made, where no other port will do. The agent takes the port for good when a round begins.
void refuse_a_taken_port(const Plan& plan) {
  if (plan.master_port != 0 && plan.master_port_need == PortNeed::kExactly) HeldPort::exactly(plan.master_port);
}

// What a start would refuse, as far as that shows without one. A node of many may follow another that has the directory.
void refuse_what_cannot_run(const Plan& plan) {
  if (plan.run_dir.empty() || plan.rendezvous.many()) return;
  if (plan.kind != Plan::Kind::kTrain) return refuse_held_run(plan.run_dir);
  refuse_to_mix(plan);
  examine_run_directory(plan.run_dir, *plan.config, plan.fresh ? FreshStart::kRename : FreshStart::kNo);
}

using Lead = rendezvous::NodeShellSettings::Lead;

// Another agent of this machine or file system has the run directory, and this one was not told to be the first.
bool follows_owner_of(const fs::path& run_dir, const std::optional<NetworkStart>& network) {
  if (!network || run_dir.empty()) return false;
  return network->shell.lead == Lead::kNo || (network->shell.lead == Lead::kIfPortIsFree && run_lock_is_held(run_dir));
}

// The config of a node that does not own the run directory, which may be on another disk.
class PrivateConfig {
 public:
  explicit PrivateConfig(const TrainConfig& config) {
    std::string name = (fs::temp_directory_path() / "ddprun-config-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw UsageError("cannot make a folder in " + fs::temp_directory_path().string() + ": " + std::strerror(errno) +
                       "; TMPDIR names another place");
    }
    folder_ = name;
    write_file_atomically(file(), to_json_text(config));
  }
  ~PrivateConfig() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  PrivateConfig(const PrivateConfig&) = delete;
  PrivateConfig& operator=(const PrivateConfig&) = delete;
  fs::path file() const { return folder_ / "config.json"; }

 private:
  fs::path folder_;
};

int follow_training(Plan plan, std::optional<NetworkStart> network) {
  network->shell.lead = Lead::kNo;
  const PrivateConfig config(*plan.config);
  plan.command.back() = config.file().string();
  const fs::path report = report_of_other_node(plan.run_dir);
  std::error_code error;
  fs::create_directories(report.parent_path(), error);
  if (error)
    throw UsageError("cannot make " + report.parent_path().string() + ": " + error.message() +
                     "; --run-dir names another place");
  return run_plan(plan, {-1, plan.run_dir / "logs", report}, {}, std::move(network));
}

int run_training(const Plan& plan, std::optional<NetworkStart> network) {
  if (follows_owner_of(plan.run_dir, network)) return follow_training(plan, std::move(network));
  refuse_to_mix(plan);
  std::optional<RunState> opened;
  try {
    opened = open_run_directory(plan.run_dir, *plan.config, plan.fresh ? FreshStart::kRename : FreshStart::kNo);
  } catch (const UsageError&) {
    // Two agents of one command on one machine: the other one was faster just now.
    if (!follows_owner_of(plan.run_dir, network)) throw;
    return follow_training(plan, std::move(network));
  }
  const RunState& state = *opened;
  if (state.finished && plan.resume == Plan::Resume::kAuto) {
    print(already_done(plan, state));
    return 0;
  }
  ConsoleFacts facts;
  if (!state.renamed_to.empty()) facts.opening.push_back("the earlier run is kept as " + state.renamed_to);
  if (state.latest_step && plan.resume == Plan::Resume::kAuto) {
    facts.opening.push_back("resuming: the newest checkpoint is of step " + std::to_string(*state.latest_step));
  }
  const bool copies_elsewhere = !plan.config->checkpoint.local_dir.empty() || network.has_value();
  if (plan.resume == Plan::Resume::kAuto && state.resumed && !has_checkpoints(plan) && !copies_elsewhere) {
    facts.opening.emplace_back("note: no checkpoint of the earlier start is there; training begins again from step 0");
  }
  std::string_view notes = state.notes;
  while (!notes.empty()) {
    const std::size_t end = notes.find('\n');
    if (end != 0) facts.opening.push_back("note: " + std::string(notes.substr(0, end)));
    notes.remove_prefix(end == std::string_view::npos ? notes.size() : end + 1);
  }
  const int exit_code =
      run_plan(plan, {state.lock_fd, plan.run_dir / "logs", state.layout.report()}, std::move(facts), std::move(network));
  ::close(state.lock_fd);
  return exit_code;
}

int run_script(const Plan& plan, const Environment& environment, std::optional<NetworkStart> network) {
  FolderOwner owner = follows_owner_of(plan.run_dir, network) ? FolderOwner::kOtherNode : FolderOwner::kThisNode;
  ScriptFolders folders;
  try {
    folders = make_script_folders(plan, environment, owner);
  } catch (const UsageError&) {
    if (owner == FolderOwner::kOtherNode || !follows_owner_of(plan.run_dir, network)) throw;
    owner = FolderOwner::kOtherNode;  // the other one was faster just now
    folders = make_script_folders(plan, environment, owner);
  }
  if (network && owner == FolderOwner::kOtherNode) network->shell.lead = Lead::kNo;
  ConsoleFacts facts;
  if (!folders.note.empty()) facts.opening.push_back(folders.note);
  using Kept = ReportFacts::Kept;
  const Kept kept = goes_when_all_goes_well(folders, plan) ? Kept::kUnlessAllGoesWell : Kept::kAlways;
  return run_plan(plan, folders.files, std::move(facts), std::move(network), kept,
                  [&](int exit_code) { leave_script_folders(folders, plan, exit_code); });
}

fs::path current_folder() {
  std::error_code error;
  fs::path folder = fs::current_path(error);
  if (error) throw UsageError("the current folder cannot be used: " + error.message() + "; cd to one that exists");
  return folder;
}

void complain(CalledAs called_as, const std::string& message) {
  // A message quotes words of the command line and names of files, and some have several lines.
  const std::string line =
      (called_as == CalledAs::kTorchrun ? "torchrun: " : "ddprun: ") + printable(message, LineEnds::kKeep) + "\n";
  [[maybe_unused]] const ssize_t count = ::write(STDERR_FILENO, line.data(), line.size());
}

// --help and its like: a text instead of a job.
std::optional<std::string> text_asked_for(const Arguments& arguments) {
  const Settings& settings = arguments.settings;
  if (settings.flag("help")) return help_text(arguments.called_as);
  if (settings.flag("version")) return "ddprun " + version_and_commit() + "\n";
  if (settings.flag("torchrun-help")) return torchrun_help_text();
  if (const Setting* shell = settings.find("print-completion")) {
    return completion_script(shell->value, arguments.called_as == CalledAs::kTorchrun ? "torchrun" : "ddprun");
  }
  return std::nullopt;
}

void say_first(const Plan& plan) {
  if (plan.verbosity >= 0) {
    for (const std::string& warning : plan.warnings) {
      complain(plan.as_torchrun ? CalledAs::kTorchrun : CalledAs::kDdprun, "warning: " + warning);
    }
  }
  const std::string banner = threads_banner(plan, process_environment());
  [[maybe_unused]] const ssize_t count = ::write(STDERR_FILENO, banner.data(), banner.size());
}

int run(const Arguments& arguments, const JoinedJob* joined = nullptr) {
  const Environment environment = process_environment();
  Plan plan = make_plan(arguments, this_machine(), environment, current_folder());
  if (joined != nullptr) follow(plan, *joined);
  if (plan.dry_run) {
    refuse_what_cannot_run(plan);
    const VariableList variables = environment_of_rank_0(plan, environment_of_this_process());
    print(plan.json ? dry_run_json(plan, variables) : dry_run_text(plan, variables));
    return 0;
  }
  std::optional<NetworkStart> network;
  if (plan.rendezvous.many()) {
    std::optional<std::string> token = take_token_variable();
    if (joined != nullptr) token = joined->token;
    network = prepare_network(plan, job_text(arguments, plan, current_folder()), std::move(token));
  } else {
    refuse_a_taken_port(plan);
  }
  say_first(plan);
  return plan.kind == Plan::Kind::kTrain ? run_training(plan, std::move(network))
                                         : run_script(plan, environment, std::move(network));
}

// ddprun join: from where the coordinator was started, when that folder is here as well.
int join(std::span<const std::string> args) {
  const JoinedJob job = fetch_job(args, process_environment());
  std::error_code ignored;
  fs::current_path(job.folder, ignored);
  struct Removed {
    fs::path folder;
    ~Removed() {
      std::error_code error;
      if (!folder.empty()) fs::remove_all(folder, error);
    }
  } const config{job.config_folder};
  return run(job.arguments, &job);
}

// Errors become one line and the exit code of their type.
template <typename Function>
int guarded(CalledAs called_as, const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    complain(called_as, error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    complain(called_as, error.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}

// A descriptor below 3 that we open ourselves (the lock, the guardian's socket) would be taken for the console.
void open_missing_standard_streams() {
  int fd = 0;
  do fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  ddprun::open_missing_standard_streams();
  ::signal(SIGPIPE, SIG_IGN);  // a console that goes away must not end a job
  ::signal(SIGCHLD, SIG_DFL);  // a caller that ignores it would have the kernel reap our workers and keep how they ended
  using namespace ddprun;
  const CalledAs called_as = name_called_by(argc > 0 ? argv[0] : "");
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  std::optional<Arguments> arguments;
  std::optional<int> ended;  // nothing left to plan
  const int parsed = guarded(called_as, [&] {
    if (called_as == CalledAs::kDdprun) ended = run_subcommand(args);  // torchrun has none: a script may have that name
    if (ended) return *ended;
    if (called_as == CalledAs::kDdprun && !args.empty() && args.front() == "join") {
      ended = join(std::span(args).subspan(1));
      return *ended;
    }
    arguments = parse_arguments(args, process_environment());
    arguments->called_as = called_as;
    arguments->called_from = fs::path(argc > 0 ? argv[0] : "").parent_path();
    if (const auto text = text_asked_for(*arguments)) {
      print(*text);
      ended = 0;
    } else if (arguments->positional.empty()) {
      throw UsageError(kNothingToRun);
    } else if (called_as == CalledAs::kDdprun) {
      adopt_scheduler_settings(*arguments, process_environment());
    }
    return 0;
  });
  if (parsed != 0 || ended) return parsed;
  const int exit_code = guarded(called_as, [&] { return run(*arguments); });
  return called_as == CalledAs::kTorchrun ? torchruns_exit_code(exit_code) : exit_code;
}
