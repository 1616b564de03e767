// ddprun: parses the command line, plans the job and runs it (launcher/launch/). It checks for as many errors as possible
// before it starts a process. After an error it prints one line "ddprun: ..." on stderr. Its exit code depends on the type of
// the error (docs/exit-codes.md).
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/base/version.hpp"
#include "common/config/keys.hpp"
#include "common/system/print.hpp"
#include "common/system/write_all.hpp"
#include "launcher/commands/dry_run.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/commands/version_text.hpp"
#include "launcher/doctor/doctor.hpp"
#include "launcher/events/event_json.hpp"
#include "launcher/hosts/run_on_hosts.hpp"
#include "launcher/launch/refusals.hpp"
#include "launcher/launch/removed_folder.hpp"
#include "launcher/launch/start_script.hpp"
#include "launcher/launch/start_training.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/network/join_job.hpp"
#include "launcher/network/network_start.hpp"
#include "launcher/options/bench_command.hpp"
#include "launcher/options/completion.hpp"
#include "launcher/options/man_page.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/scheduler.hpp"
#include "launcher/options/torchrun_differences.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/plan/torchrun_name.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "rendezvous/identity/token_search.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

fs::path current_folder() {
  std::error_code error;
  fs::path folder = fs::current_path(error);
  if (error) throw UsageError("the current folder cannot be used: " + error.message() + "; change to a folder that exists");
  return folder;
}

void print_error(CalledAs called_as, const std::string& message) {
  // The message is escaped, because it may quote the command line and file names. Line ends are kept, because some messages
  // have several lines.
  const std::string program = called_as == CalledAs::kTorchrun ? "torchrun: " : "ddprun: ";
  write_all(STDERR_FILENO, program + printable(message, LineEnds::kKeep) + "\n");
}

// Returns the text for --help and similar options, which start no job. Returns nullopt if no such option is given.
std::optional<std::string> requested_text(const Arguments& arguments) {
  const Settings& settings = arguments.settings;
  if (settings.flag("help")) return help_text(arguments.called_as);
  if (settings.flag("help-all")) return long_help_text();
  if (settings.flag("version")) return version_text();
  if (settings.flag("torchrun-help")) return torchrun_help_text();
  if (settings.flag("print-man")) return man_page(kVersion);
  if (const Setting* shell = settings.find("print-completion")) {
    std::vector<std::string> keys;
    for (const Key& key : config_keys()) keys.push_back(key.dotted());
    return completion_script(shell->value, arguments.called_as == CalledAs::kTorchrun ? "torchrun" : "ddprun", keys);
  }
  return std::nullopt;
}

void print_notices(const Plan& plan) {
  if (plan.verbosity >= 0) {
    for (const std::string& warning : plan.warnings) {
      print_error(plan.as_torchrun ? CalledAs::kTorchrun : CalledAs::kDdprun, "warning: " + warning);
    }
  }
  write_all(STDERR_FILENO, threads_banner(plan, process_environment()));
}

int run(const Arguments& arguments, JoinedJob* joined = nullptr) {
  // Removes the job's secret token from this process's environment immediately, because every child process would inherit it.
  std::optional<std::string> token = take_token_variable();
  if (joined != nullptr) token = std::exchange(joined->token, {});
  const Environment environment = process_environment();
  Plan plan = make_plan(arguments, this_machine(), environment, current_folder());
  if (joined != nullptr) follow(plan, *joined);
  if (plan.dry_run) {
    refuse_invalid_start(plan);
    const VariableList variables = environment_of_rank_0(plan, environment_of_this_process());
    print(plan.json ? dry_run_json(plan, variables) : dry_run_text(plan, variables));
    return 0;
  }
  if (plan.preflight) {
    // The checks run before the rendezvous. So a node with an error never joins, and the other nodes of --nnodes MIN:MAX start
    // without it.
    for (std::string& warning : doctor::preflight(plan)) plan.warnings.push_back(std::move(warning));
  }
  std::optional<NetworkStart> network;
  if (plan.rendezvous.many()) {
    network = prepare_network(plan, job_text(arguments, plan, current_folder()), std::move(token));
  } else {
    if (token) const Token wiped(std::move(*token));
    refuse_taken_port(plan);
  }
  print_notices(plan);
  return plan.kind == Plan::Kind::kTrain ? start_training(plan, std::move(network))
                                         : start_script(plan, environment, std::move(network));
}

// Runs `ddprun join`: fetches the job from the coordinator and runs it. Changes to the coordinator's working directory if this
// directory exists on this machine.
int join(std::span<const std::string> args) {
  if (std::find(args.begin(), args.end(), "--help") != args.end() || std::find(args.begin(), args.end(), "-h") != args.end()) {
    print(join_help_text());
    return 0;
  }
  JoinedJob job = fetch_job(args, process_environment());
  std::error_code ignored;
  fs::current_path(job.folder, ignored);
  const RemovedFolder files{job.files};
  return run(job.arguments, &job);
}

// Returns the command line of the job of `ddprun bench`. For --help, prints the help and returns nullopt.
std::optional<std::vector<std::string>> bench_job(std::span<const std::string> args) {
  if (std::find(args.begin(), args.end(), "--help") != args.end() || std::find(args.begin(), args.end(), "-h") != args.end()) {
    print(help_of(*find_subcommand("bench")));
    return std::nullopt;
  }
  const Machine machine = this_machine();
  auto trainer = machine.next_to_self("ddptrain");
  if (!trainer) trainer = machine.on_path("ddptrain");
  if (!trainer)
    throw UsageError("ddprun bench needs ddptrain, which is neither next to ddprun nor on PATH; build it: ./dev build");
  return command_of_bench(args, trainer->string());
}

// Converts an unexpected file system error into an Error. The result is a usage error if the user can fix the path. Otherwise
// it is an internal error, for example if the disk is full.
Error error_of_path(const fs::filesystem_error& error) {
  constexpr std::array<int, 10> kUserFixable{EACCES, EPERM,        ENOENT, ENOTDIR, EISDIR,
                                             ELOOP,  ENAMETOOLONG, EROFS,  EEXIST,  ENOTEMPTY};
  const bool usage = std::find(kUserFixable.begin(), kUserFixable.end(), error.code().value()) != kUserFixable.end();
  const std::string path = error.path1().empty() ? std::string(error.what()) : "'" + error.path1().string() + "'";
  return Error(usage ? ExitCode::kUsage : ExitCode::kInternal,
               path + " cannot be used: " + error.code().message() +
                   (usage ? "; fix that path or its permissions, or use another path" : ""));
}

// Runs `function`. After an error it prints one line and returns the exit code of the error's type.
template <typename Function>
int guarded(CalledAs called_as, bool json, const Function& function) {
  const auto end_with = [&](const Error& error) {
    print_error(called_as, error.what());
    if (json && error.code() == ExitCode::kUsage) print(usage_error_line(error.what()));
    return static_cast<int>(error.code());
  };
  try {
    return function();
  } catch (const Error& error) {
    return end_with(error);
  } catch (const fs::filesystem_error& error) {
    return end_with(error_of_path(error));
  } catch (const std::exception& error) {
    print_error(called_as, error.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}

// Opens /dev/null in place of closed standard streams. Otherwise a file that we open later (such as a lock or a socket) could
// get a descriptor below 3. Console output would then be written into that file.
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
  ::mallopt(M_ARENA_MAX, 1);   // our threads only write files and resolve names, so a heap for each would waste memory
  ::signal(SIGPIPE, SIG_IGN);  // a closed console must not end the job
  ::signal(SIGCHLD, SIG_DFL);  // with SIG_IGN inherited from the caller, the kernel would discard the workers' exit status
  using namespace ddprun;
  const CalledAs called_as = name_called_by(argc > 0 ? argv[0] : "");
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  std::optional<Arguments> arguments;
  std::optional<int> ended;  // exit code of a command that has already run and starts no job, such as `ddprun ps`
  // Searches all arguments for --json, because the command line is not parsed yet. If --json belongs to the script's arguments,
  // a usage error is also printed as a JSON line, which is harmless.
  const bool wants_json = std::find(args.begin(), args.end(), "--json") != args.end();
  const int parsed = guarded(called_as, wants_json, [&] {
    if (called_as == CalledAs::kDdprun)
      ended = run_subcommand(args);  // torchrun has no subcommands, and a script could be named "stop"
    if (ended) return *ended;
    if (called_as == CalledAs::kDdprun && !args.empty() && args.front() == "join") {
      ended = join(std::span(args).subspan(1));
      return *ended;
    }
    if (called_as == CalledAs::kDdprun && !args.empty() && args.front() == "bench") {
      if (const auto job = bench_job(std::span(args).subspan(1))) {
        arguments = parse_arguments(*job, process_environment());
      } else {
        ended = 0;
        return 0;
      }
    } else {
      arguments = parse_arguments(args, process_environment());
    }
    arguments->called_as = called_as;
    arguments->called_from = fs::path(argc > 0 ? argv[0] : "").parent_path();
    if (const auto text = requested_text(*arguments)) {
      print(*text);
      ended = 0;
    } else if (arguments->positional.empty()) {
      throw UsageError(kNothingToRun);
    } else if (called_as == CalledAs::kDdprun && !arguments->settings.given("hosts")) {
      adopt_scheduler_settings(*arguments, process_environment());
    }
    return 0;
  });
  if (parsed != 0 || ended) return parsed;
  const int exit_code = guarded(called_as, arguments->settings.flag("json"), [&] {
    return arguments->settings.given("hosts") ? run_on_hosts(*arguments) : run(*arguments);
  });
  return called_as == CalledAs::kTorchrun ? torchrun_exit_code(exit_code) : exit_code;
}
