// ddprun: parses the command line, plans the job and runs it (launcher/start/). It reports as many errors as possible before it
// starts anything. An error ends it with one line "ddprun: ..." on stderr and the exit code of the error's type
// (docs/exit-codes.md).
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
#include "launcher/commands/dry_run.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/commands/version_text.hpp"
#include "launcher/events/event_json.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/network/join_job.hpp"
#include "launcher/network/network_start.hpp"
#include "launcher/options/completion.hpp"
#include "launcher/options/man_page.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/options_torchrun.hpp"
#include "launcher/options/scheduler.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/plan/torchrun_name.hpp"
#include "launcher/start/refusals.hpp"
#include "launcher/start/start_script.hpp"
#include "launcher/start/start_training.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "rendezvous/identity/token.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

fs::path current_folder() {
  std::error_code error;
  fs::path folder = fs::current_path(error);
  if (error) throw UsageError("the current folder cannot be used: " + error.message() + "; cd to one that exists");
  return folder;
}

void complain(CalledAs called_as, const std::string& message) {
  // Escaped, since a message quotes the command line and file names. Some messages have several lines.
  const std::string line =
      (called_as == CalledAs::kTorchrun ? "torchrun: " : "ddprun: ") + printable(message, LineEnds::kKeep) + "\n";
  [[maybe_unused]] const ssize_t count = ::write(STDERR_FILENO, line.data(), line.size());
}

// The answer to --help and similar options, which start no job.
std::optional<std::string> text_asked_for(const Arguments& arguments) {
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

void say_first(const Plan& plan) {
  if (plan.verbosity >= 0) {
    for (const std::string& warning : plan.warnings) {
      complain(plan.as_torchrun ? CalledAs::kTorchrun : CalledAs::kDdprun, "warning: " + warning);
    }
  }
  const std::string banner = threads_banner(plan, process_environment());
  [[maybe_unused]] const ssize_t count = ::write(STDERR_FILENO, banner.data(), banner.size());
}

int run(const Arguments& arguments, JoinedJob* joined = nullptr) {
  // The variable is removed immediately, whether it is needed or not: every process started later would inherit it.
  std::optional<std::string> token = take_token_variable();
  if (joined != nullptr) token = std::exchange(joined->token, {});
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
    network = prepare_network(plan, job_text(arguments, plan, current_folder()), std::move(token));
  } else {
    if (token) const Token wiped(std::move(*token));
    refuse_a_taken_port(plan);
  }
  say_first(plan);
  return plan.kind == Plan::Kind::kTrain ? start_training(plan, std::move(network))
                                         : start_script(plan, environment, std::move(network));
}

// ddprun join: runs in the coordinator's working directory, if this machine has it.
int join(std::span<const std::string> args) {
  if (std::find(args.begin(), args.end(), "--help") != args.end() || std::find(args.begin(), args.end(), "-h") != args.end()) {
    print(join_help_text());
    return 0;
  }
  JoinedJob job = fetch_job(args, process_environment());
  std::error_code ignored;
  fs::current_path(job.folder, ignored);
  struct Removed {
    fs::path folder;
    ~Removed() {
      std::error_code error;
      if (!folder.empty()) fs::remove_all(folder, error);
    }
  } const config{job.files};
  return run(job.arguments, &job);
}

// An unexpected file system error. It is a usage error if the user can fix it, and an internal error if a disk or process has
// run out of a resource.
Error error_of_path(const fs::filesystem_error& error) {
  constexpr std::array<int, 10> kToMend{EACCES, EPERM, ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, EROFS, EEXIST, ENOTEMPTY};
  const bool usage = std::find(kToMend.begin(), kToMend.end(), error.code().value()) != kToMend.end();
  const std::string path = error.path1().empty() ? std::string(error.what()) : "'" + error.path1().string() + "'";
  return Error(usage ? ExitCode::kUsage : ExitCode::kInternal,
               path + " cannot be used: " + error.code().message() +
                   (usage ? "; mend that path or its permissions, or name another one" : ""));
}

// Runs a function, and turns an error into one line and the exit code of its type.
template <typename Function>
int guarded(CalledAs called_as, bool json, const Function& function) {
  const auto end_with = [&](const Error& error) {
    complain(called_as, error.what());
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
    complain(called_as, error.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}

// Otherwise a descriptor below 3 that we open ourselves (the lock, the guardian's socket) would be used as the console.
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
  ::mallopt(M_ARENA_MAX, 1);   // threads only write files and resolve names; separate heaps for them would cost time and memory
  ::signal(SIGPIPE, SIG_IGN);  // a closed console must not end the job
  ::signal(SIGCHLD, SIG_DFL);  // if the caller ignored it, the kernel would reap our workers and discard their exit status
  using namespace ddprun;
  const CalledAs called_as = name_called_by(argc > 0 ? argv[0] : "");
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  std::optional<Arguments> arguments;
  std::optional<int> ended;  // set: the command is complete, and nothing is left to plan
  // Decided from the plain word, before the command line is parsed. A script's own --json is harmless at this point.
  const bool asks_for_json = std::find(args.begin(), args.end(), "--json") != args.end();
  const int parsed = guarded(called_as, asks_for_json, [&] {
    if (called_as == CalledAs::kDdprun)
      ended = run_subcommand(args);  // not under the name torchrun, which has no subcommands: a script may have that name
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
  const int exit_code = guarded(called_as, arguments->settings.flag("json"), [&] { return run(*arguments); });
  return called_as == CalledAs::kTorchrun ? torchruns_exit_code(exit_code) : exit_code;
}
