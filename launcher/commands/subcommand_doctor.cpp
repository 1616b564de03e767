// `ddprun doctor`: checks whether this machine can run a job (launcher/doctor). run_subcommand() calls it. Its arguments are
// the job's own command. So options, PET_* variables and values of the scheduler mean the same as when the job is started.
//
// The call of make_plan() may hang too: it queries NVML for the number of GPUs, and the files of the config may be on a dead
// server. So a child makes the plan, and this child starts the children for the subjects.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/run_directory/run_lock.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/doctor/doctor.hpp"
#include "launcher/doctor/probes.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/parse_number.hpp"
#include "launcher/options/scheduler.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/plan/plan_placement.hpp"
#include "launcher/plan/plan_rendezvous.hpp"
#include "rendezvous/identity/token_search.hpp"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Limits of the whole command. docs/doctor.md promises 3 s, so 200 ms remain to write the output and to end the processes.
constexpr milliseconds kQuickCommand{2'800};
constexpr milliseconds kFullCommand{80'000};

doctor::Check problem_of_job(const Error& problem) {
  return doctor::error("job", problem.what(), "correct the command or the config as the message states");
}

// The needs that the options alone determine. They are used if no job is given, or if the plan of the job has an error.
doctor::JobNeeds needs_of(const Settings& settings) {
  doctor::JobNeeds needs;
  const std::string workers = settings.text("nproc-per-node");
  if (const auto number = parse_whole(workers)) needs.workers = static_cast<int>(std::clamp<std::int64_t>(*number, 1, 4096));
  if (workers == "gpu") needs.gpus = doctor::JobNeeds::Gpus::kRequired;
  const RendezvousPlan rendezvous = resolve_rendezvous(settings).plan;
  needs.nodes = rendezvous.max_nodes;
  needs.meeting_host = rendezvous.host;
  if (needs.meeting_host.empty() && settings.given("master-addr")) needs.meeting_host = settings.text("master-addr");
  if (rendezvous.node_rank) needs.is_first = *rendezvous.node_rank == 0;
  needs.join_timeout = std::chrono::ceil<std::chrono::seconds>(rendezvous.join_timeout);
  needs.interface = settings.text("interface");
  return needs;
}

// Adds an error if another job uses the run directory, or if the directory belongs to another config. A job on several nodes
// is skipped: its run directory may be on another node.
void examine_run(doctor::Checks& checks, const Plan& plan) {
  if (plan.run_dir.empty() || plan.rendezvous.many()) return;
  try {
    if (plan.trains()) {
      examine_run_directory(plan.run_dir, *plan.config, plan.fresh ? FreshStart::kRename : FreshStart::kNo);
    } else {
      refuse_held_run(plan.run_dir);
    }
  } catch (const Error& problem) {
    checks.push_back(doctor::error("run-directory", problem.what(),
                                   "choose another folder with --run-dir, or start over with "
                                   "--fresh"));
  }
}

// Adds an error if another program uses the port that the user chose for this node. The test reserves the port for a moment.
void examine_port(doctor::Checks& checks, const Plan& plan, const doctor::JobNeeds& needs) {
  const bool many = plan.rendezvous.many();
  if (many && needs.is_first != true) return;
  const int port = many ? plan.rendezvous.port : plan.master_port;
  if (port == 0 || plan.master_port_need != PortNeed::kExactly) return;
  try {
    HeldPort::exactly(port);
  } catch (const Error& problem) {
    checks.push_back(doctor::error("port", problem.what(), "choose another port, or end the program that uses this one"));
  }
}

doctor::Checks examine_command(Arguments arguments, doctor::Depth depth, steady_clock::time_point start) {
  const Environment environment = process_environment();
  doctor::Checks checks;
  doctor::Examination job;
  try {
    adopt_scheduler_settings(arguments, environment);
    job.needs = needs_of(arguments.settings);
    if (const std::string folder = arguments.settings.text("run-dir"); !folder.empty())
      job.run_dir = std::filesystem::absolute(folder);
    if (!arguments.positional.empty()) {
      const Plan plan = make_plan(arguments, this_machine(), environment, std::filesystem::current_path());
      job = doctor::examination_of(plan);
      examine_run(checks, plan);
      examine_port(checks, plan, job.needs);
    }
  } catch (const Error& problem) {
    checks.push_back(problem_of_job(problem));
  }
  const doctor::Checks more = doctor::examine(job, depth, start);
  checks.insert(checks.end(), more.begin(), more.end());
  return checks;
}

// Removes --quick, and returns true if it was given. After a script, --quick is an argument of the script and stays. After a
// train.json, options of ddprun may follow, so --quick is removed there too.
bool take_quick(std::vector<std::string>& words) {
  std::vector<std::string> others = words;
  std::erase(others, "--quick");
  const std::vector<std::string> positional = parse_arguments(others, process_environment()).positional;
  auto end = words.end();
  if (!positional.empty() && !positional.front().ends_with(".json")) end = std::ranges::find(words, positional.front());
  const auto kept = std::remove(words.begin(), end, "--quick");
  const bool quick = kept != end;
  words.erase(kept, end);
  return quick;
}

}  // namespace

int examine_machine(const SubcommandArguments& arguments) {
  const auto start = steady_clock::now();
  // The examination starts Python and ddptrain, which must not inherit the job's token.
  if (auto token = take_token_variable()) const Token wiped(std::move(*token));
  std::vector<std::string> words = arguments.words();
  const bool quick = take_quick(words);
  Arguments command = parse_arguments(words, process_environment());
  if (command.settings.flag("help")) {
    print(help_of(*find_subcommand("doctor")));
    return 0;
  }
  check_worker_count(command.settings);
  const bool json = command.settings.flag("json");
  const doctor::Probe whole{
      .name = "job",
      .examine = [&] { return examine_command(command, quick ? doctor::Depth::kQuick : doctor::Depth::kFull, start); },
      .limit = quick ? kQuickCommand : kFullCommand,
      .late = doctor::warning("job", "the job's plan could not be computed in time: a driver or file server does not answer",
                              "run nvidia-smi, and check the disks and servers that contain the config and its data")};
  const doctor::Checks checks = doctor::run_probes({whole}, start);
  print(json ? json_lines_of(checks) : table_of(checks));
  return exit_code_of(checks);
}

}  // namespace ddprun
