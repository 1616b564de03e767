// `ddprun ps`, `status`, `top` and `stop`: the running jobs of this user on this machine. run_subcommand() calls them.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "common/base/error.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/chosen_job.hpp"
#include "launcher/commands/gpus_of_job.hpp"
#include "launcher/commands/job_nodes.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/commands/terminal_page.hpp"
#include "launcher/control/control_socket.hpp"
#include "launcher/control/openmetrics.hpp"
#include "launcher/output/typed_keys.hpp"
#include "launcher/report/report.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

constexpr const char* kWhich =
    "\nJOB is the job's PID, run directory or title as `ddprun ps` shows them; it may be left out when one job runs.\n";
constexpr int kRefreshMs = 1000;
constexpr std::chrono::seconds kEndsAtOnce{5};

// The end of the job, from its report; empty without a report.
std::string how_it_ended(const std::string& report) {
  std::ifstream in(report, std::ios::binary);
  const json document = in ? json::parse(in, nullptr, false) : json();
  if (!document.is_object() || !document.contains("exit") || !document["exit"].is_object()) return {};
  const json& exit = document["exit"];
  if (!exit.contains("code") || !exit["code"].is_number_integer()) return {};
  const std::string why = text_of(exit, "why");
  return "exit code " + std::to_string(exit["code"].get<int>()) + (why.empty() ? "" : ": " + why);
}

// `here`: only this node was stopped, so the other nodes may continue.
std::string ended_text(const RunningJob& job, bool here) {
  const std::string end = how_it_ended(job.status.value("report", ""));
  return std::string(" has ended") + (here ? " on this node" : "") + (end.empty() ? "" : ": " + end) + "\n";
}

const json kStatusOfNodes{{"ask", "status"}};

[[noreturn]] void fail_without_answer(const RunningJob& job) {
  throw UsageError("the job of process " + std::to_string(job.agent) + " does not answer; kill -TERM " +
                   std::to_string(job.agent) + " reaches it as soon as it runs again");
}

// One refresh of `top`.
struct JobNow {
  std::string table;
  std::string below;  // a line about nodes that have not answered
};

JobNow now_of(RunningJob& job, const JobRequest& request) {
  if (!asks_all_nodes(job, request)) {
    ask_for_gpus(job);
    return {status_text(job, {job.status}), ""};
  }
  NodesAnswers nodes = ask_nodes(job, kStatusOfNodes);
  ask_for_gpus(job, nodes);
  return {status_of_all(job, nodes), about_silence(nodes)};
}

std::string top_page(const JobNow& shown) {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1) return shown.table + shown.below;
  ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  return "\x1b[H\x1b[2J" + terminal_page(shown.table, shown.below, size.ws_row, size.ws_col);
}

// Stops every node. If only one stopped, the others would see a node that leaves, and continue. Returns false if the agent did
// not answer.
bool stop_all_nodes(const RunningJob& job, bool now) {
  const NodesAnswers nodes = ask_nodes(job, {{"ask", now ? "stop now" : "stop"}});
  if (!nodes.heard) return false;
  const bool stops =
      std::any_of(nodes.answers.begin(), nodes.answers.end(), [](const json& node) { return node.value("stops", false); });
  if (stops) return true;
  throw UsageError(nodes.of == 0 ? "the job has no coordinator at the moment that could end it on all nodes: try again in some "
                                   "seconds, or stop this node alone with --here"
                                 : "the coordinating node does not answer: try again, or stop this node alone with --here");
}

}  // namespace

int list_jobs(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun ps [--json]";
  constexpr std::array<std::string_view, 1> kAllowed{"--json"};
  const JobRequest request = parse_job_request(args, kAllowed, kUsage);
  if (request.help) {
    print(std::string(kUsage) + "\nLists your running jobs on this machine. --json: one line of JSON for each.\n");
    return 0;
  }
  const std::vector<RunningJob> jobs = running_jobs();
  if (request.has("--json")) {
    for (const RunningJob& job : jobs) {
      print((job.status.is_null() ? json{{"pid", job.agent}, {"state", "no answer"}} : job.status).dump() + "\n");
    }
  } else {
    print(jobs.empty() ? "no job of yours runs on this machine\n" : table_of(jobs));
  }
  return 0;
}

int show_status(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun status [JOB] [--json | --openmetrics] [--here]";
  constexpr std::array<std::string_view, 4> kAllowed{"JOB", "--json", "--openmetrics", "--here"};
  const JobRequest request = parse_job_request(args, kAllowed, kUsage);
  if (request.help) {
    print(std::string(kUsage) +
          "\nTells how far a running job is, and what its workers do, on all of its nodes."
          "\n--here: on this one only. --openmetrics: as text for Prometheus." +
          kWhich);
    return 0;
  }
  if (request.has("--json") && request.has("--openmetrics"))
    throw UsageError(std::string("--json or --openmetrics; ") + kUsage);
  RunningJob job = chosen_job(request.job, agents_of(request));
  if (!asks_all_nodes(job, request)) {
    if (!request.has("--openmetrics")) ask_for_gpus(job);
    print(request.has("--openmetrics") ? openmetrics_of(job.status, {job.status})
          : request.has("--json")      ? job.status.dump() + "\n"
                                       : status_text(job, {job.status}));
    return 0;
  }
  NodesAnswers nodes = ask_nodes(job, kStatusOfNodes);
  if (!request.has("--openmetrics")) ask_for_gpus(job, nodes);
  if (request.has("--openmetrics")) {
    print(openmetrics_of(job.status, nodes.answers.empty() ? std::vector<json>{job.status} : nodes.answers));
    return 0;
  }
  if (!request.has("--json")) {
    print(status_of_all(job, nodes) + about_silence(nodes));
    return 0;
  }
  json status = job.status;
  status["job"] = {{"answered", nodes.answers.size()}, {"of", nodes.of}, {"nodes", nodes.answers}};
  print(status.dump() + "\n");
  return 0;
}

int watch_job(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun top [JOB] [--here]";
  constexpr std::array<std::string_view, 2> kAllowed{"JOB", "--here"};
  const JobRequest request = parse_job_request(args, kAllowed, kUsage);
  if (request.help) {
    print(std::string(kUsage) +
          "\nShows the status every second until the job ends. Press q or Ctrl-C to leave. --here: of this node only." +
          kWhich);
    return 0;
  }
  RunningJob job = chosen_job(request.job, agents_of(request));
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, job.agent, 0)));
  JobNow shown = now_of(job, request);
  TypedKeys keys;
  for (;;) {
    print_while_read(top_page(shown));
    std::array<pollfd, 3> ready{pollfd{process.get(), POLLIN, 0}, pollfd{STDOUT_FILENO, 0, 0}, pollfd{keys.fd(), POLLIN, 0}};
    ::poll(ready.data(), ready.size(), kRefreshMs);
    if (ready[1].revents != 0) return 0;  // stdout is closed
    if (ready[2].revents != 0 && keys.has('q')) return 0;
    if (process.get() < 0 || ready[0].revents != 0) break;
    const auto answer = ask_job(job.socket, kAskStatus);
    json status = answer ? json::parse(*answer, nullptr, false) : json();
    if (status.is_object()) {
      job.status = std::move(status);
      shown = now_of(job, request);
    } else {
      shown.below = "process " + std::to_string(job.agent) + " does not answer: it is stopped (Ctrl-Z?), or just ends\n";
    }
  }
  print("the job" + ended_text(job, job.status.value("several_nodes", false)));
  return 0;
}

int stop_job(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun stop [JOB] [--now] [--here]";
  constexpr std::array<std::string_view, 3> kAllowed{"JOB", "--now", "--here"};
  const JobRequest request = parse_job_request(args, kAllowed, kUsage);
  if (request.help) {
    print(std::string(kUsage) +
          "\nStops a running job in order, as SIGTERM does, and waits for its end: workers that can save do. --now kills the"
          "\nworkers. A job on several machines ends on all of them; --here stops its node on this machine only, as SIGTERM"
          "\nhere does." +
          kWhich);
    return 0;
  }
  const RunningJob job = chosen_job(request.job, agents_of(request));
  const bool heard = asks_all_nodes(job, request)
                         ? stop_all_nodes(job, request.has("--now"))
                         : ask_job(job.socket, request.has("--now") ? kAskStopNow : kAskStop).has_value();
  // An agent that is ending anyway has no time to answer.
  if (!heard && !ends_within(kEndsAtOnce, job.agent)) fail_without_answer(job);
  wait_for_end_of(job.agent);
  print(text_of(job.status, "title") + ended_text(job, job.status.value("several_nodes", false) && request.has("--here")));
  return 0;
}

}  // namespace ddprun
