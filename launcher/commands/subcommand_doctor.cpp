// `ddprun doctor`: checks whether this machine can run a job (launcher/doctor). run_subcommand() calls it. Its arguments are
// the job's own command. So options, PET_* variables and values of the scheduler mean the same as when the job is started.
//
// The call of make_plan() may hang too: it queries NVML for the number of GPUs, and the files of the config may be on a dead
// server. So a child makes the plan, and this child starts the children for the subjects.
//
// In a job on several nodes, the doctors of all nodes then meet (launcher/doctor/nodes), unless --quick or --here is given. The
// child cannot open the connections, since it is killed at its limit. It sends the place of the meeting and the facts of this
// node to its parent, as checks with special names (node_facts.hpp).
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/base/version.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/run_directory/run_lock.hpp"
#include "common/system/host_name.hpp"
#include "common/system/print.hpp"
#include "common/system/write_all.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/doctor/doctor.hpp"
#include "launcher/doctor/nodes/meet.hpp"
#include "launcher/doctor/probes.hpp"
#include "launcher/doctor/verdicts/node_facts.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/parse_number.hpp"
#include "launcher/options/scheduler.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/plan/plan_network.hpp"
#include "launcher/plan/plan_placement.hpp"
#include "launcher/plan/plan_rendezvous.hpp"
#include "rendezvous/identity/token_search.hpp"
#include "rendezvous/protocol/message.hpp"

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

struct Mode {
  bool quick = false;
  bool here = false;  // this node only
};

// How long the nodes wait for each other.
milliseconds meeting_wait(const Settings& settings, const RendezvousPlan& plan) {
  const Setting* const conf = settings.find("rdzv-conf");
  if (conf == nullptr) return doctor::kMeetingWait;
  const auto pairs = parse_rdzv_conf(*conf);
  const bool given =
      std::ranges::any_of(pairs, [](const auto& one) { return one.first == "join_timeout" || one.first == "timeout"; });
  return given ? plan.join_timeout : doctor::kMeetingWait;
}

// The network settings of a job without a program, or of a job whose plan has an error.
Plan network_plan(const Arguments& arguments, const Environment& environment, const std::filesystem::path& run_dir) {
  Plan plan;
  plan.kind = !arguments.positional.empty() && arguments.positional.front().ends_with(".json") ? Plan::Kind::kTrain
                                                                                               : Plan::Kind::kProgram;
  plan.run_dir = run_dir;
  choose_network(plan, arguments.settings, this_machine(), environment, std::filesystem::current_path());
  return plan;
}

// Adds the facts of this node, and the place where the nodes meet. To find that place, the resolver is queried.
void add_meeting(doctor::Checks& checks, const Settings& settings, const Plan& plan, bool is_whole_plan) {
  const RendezvousPlan& meeting = plan.rendezvous;
  checks.push_back(doctor::fact("ddprun", version_and_commit()));
  checks.push_back(doctor::fact("protocol", std::to_string(rendezvous::kProtocolVersion)));
  checks.push_back(doctor::fact("nnodes", std::to_string(meeting.min_nodes) + ":" + std::to_string(meeting.max_nodes)));
  if (is_whole_plan) checks.push_back(doctor::fact("job", plan.run_id));
  if (plan.config) checks.push_back(doctor::fact("config", config_digest(*plan.config)));
  const doctor::Probe place{
      .name = "nodes",
      .examine =
          [&] {
            return doctor::Checks{
                doctor::fact("meeting", text_of(doctor::meeting_place_of(plan, meeting_wait(settings, meeting))))};
          },
      .limit = doctor::kQuickLimit,
      .late = doctor::error("nodes", "the resolver did not answer the query for the address of the first node, " + meeting.host,
                            "check the name servers in /etc/resolv.conf, or give a numeric address")};
  const doctor::Checks found = doctor::run_probes({place}, steady_clock::now());
  checks.insert(checks.end(), found.begin(), found.end());
}

doctor::Checks examine_command(Arguments arguments, const Mode& mode, steady_clock::time_point start) {
  const Environment environment = process_environment();
  doctor::Checks checks;
  doctor::Examination job;
  std::optional<Plan> made;
  try {
    adopt_scheduler_settings(arguments, environment);
    job.needs = needs_of(arguments.settings);
    if (const std::string folder = arguments.settings.text("run-dir"); !folder.empty())
      job.run_dir = std::filesystem::absolute(folder);
    if (!arguments.positional.empty()) {
      made = make_plan(arguments, this_machine(), environment, std::filesystem::current_path());
      job = doctor::examination_of(*made);
      examine_run(checks, *made);
      examine_port(checks, *made, job.needs);
    }
  } catch (const Error& problem) {
    checks.push_back(problem_of_job(problem));
  }
  job.collects_facts = !mode.quick && !mode.here && job.needs.many_nodes();
  const bool is_quick = mode.quick || job.collects_facts;
  const doctor::Checks more = doctor::examine(job, is_quick ? doctor::Depth::kQuick : doctor::Depth::kFull, start);
  checks.insert(checks.end(), more.begin(), more.end());
  if (!job.collects_facts) return checks;
  try {
    const bool is_whole = made.has_value();
    add_meeting(checks, arguments.settings, is_whole ? *made : network_plan(arguments, environment, job.run_dir), is_whole);
  } catch (const Error& problem) {
    const bool is_known = std::ranges::any_of(checks, [](const doctor::Check& one) { return one.check == "job"; });
    if (!is_known) checks.push_back(problem_of_job(problem));
  }
  return checks;
}

// Removes a flag of the doctor, and returns true if it was given. After a script, the flag is an argument of the script and
// stays. After a train.json, options of ddprun may follow, so the flag is removed there too.
bool take_flag(std::vector<std::string>& words, std::string_view flag) {
  std::vector<std::string> others = words;
  for (const char* const own : {"--quick", "--here"}) std::erase(others, own);
  const std::vector<std::string> positional = parse_arguments(others, process_environment()).positional;
  auto end = words.end();
  if (!positional.empty() && !positional.front().ends_with(".json")) end = std::ranges::find(words, positional.front());
  const auto kept = std::remove(words.begin(), end, flag);
  const bool given = kept != end;
  words.erase(kept, end);
  return given;
}

void print_message(const std::string& text) {
  write_all(STDERR_FILENO, "ddprun: " + printable(text) + "\n");
}

// Meets the doctors of the other nodes, and prints what this node prints of the result.
int examine_nodes(const doctor::DoctorPlace& place, std::optional<std::string> token, doctor::NodeReport own, bool as_json) {
  print_message("waiting up to " + std::to_string(std::chrono::ceil<std::chrono::seconds>(place.wait).count()) +
                " s for the doctors of " + std::to_string(place.max_nodes) + " nodes at " +
                (place.host.empty() ? "127.0.0.1" : place.host) + " port " + std::to_string(place.port));
  const doctor::Meeting meeting = doctor::meet(place, std::move(token), own);
  print(as_json ? json_lines_of(meeting, own.checks, own.host) : table_of(meeting, own.checks));
  if (const std::string line = summary_of(meeting, own.checks, own.host); !line.empty()) print_message(line);
  return exit_code_of(meeting, own.checks);
}

}  // namespace

int examine_machine(const SubcommandArguments& arguments) {
  const auto start = steady_clock::now();
  // The examination starts Python and ddptrain, which must not inherit the job's token.
  std::optional<std::string> token = take_token_variable();
  std::vector<std::string> words = arguments.words();
  const Mode mode{.quick = take_flag(words, "--quick"), .here = take_flag(words, "--here")};
  Arguments command = parse_arguments(words, process_environment());
  if (command.settings.flag("help")) {
    print(help_of(*find_subcommand("doctor")));
    return 0;
  }
  check_worker_count(command.settings);
  const bool json = command.settings.flag("json");
  const doctor::Probe whole{
      .name = "job",
      .examine = [&] { return examine_command(command, mode, start); },
      .limit = mode.quick ? kQuickCommand : kFullCommand,
      .late = doctor::warning("job", "the job's plan could not be computed in time: a driver or file server does not answer",
                              "run nvidia-smi, and check the disks and servers that contain the config and its data")};
  doctor::Checks checks = doctor::run_probes({whole}, start);
  doctor::NodeFacts facts = doctor::take_facts(checks);
  const auto meeting = facts.extract("meeting");
  if (const auto place = meeting ? doctor::meeting_place_in(meeting.mapped()) : std::nullopt) {
    doctor::NodeReport own{.host = host_name(), .facts = std::move(facts), .checks = std::move(checks)};
    if (place->rank >= 0) own.rank = place->rank;
    return examine_nodes(*place, std::move(token), std::move(own), json);
  }
  if (token) const Token wiped(std::move(*token));
  print(json ? json_lines_of(checks) : table_of(checks));
  return exit_code_of(checks);
}

}  // namespace ddprun
