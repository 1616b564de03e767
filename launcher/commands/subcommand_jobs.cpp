// `ddprun ps`, `status`, `top` and `stop`, which show or stop the running jobs of this user on this machine. run_subcommand()
// calls them.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/chosen_job.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/commands/terminal_page.hpp"
#include "launcher/output/typed_keys.hpp"
#include "launcher/query/local/control_socket.hpp"
#include "launcher/query/local/gpus_of_job.hpp"
#include "launcher/query/local/job_nodes.hpp"
#include "launcher/query/local/node_choice.hpp"
#include "launcher/query/local/openmetrics.hpp"
#include "launcher/report/report.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

constexpr int kRefreshMs = 1000;
constexpr std::chrono::seconds kStopWait{5};

// Describes how the job ended, from its report. The text is empty if there is no report.
std::string exit_text_of_report(const std::string& report) {
  std::ifstream in(report, std::ios::binary);
  const json document = in ? json::parse(in, nullptr, false) : json();
  if (!document.is_object() || !document.contains("exit") || !document["exit"].is_object()) return {};
  const json& exit = document["exit"];
  if (!exit.contains("code") || !exit["code"].is_number_integer()) return {};
  const std::string why = text_of(exit, "why");
  return "exit code " + std::to_string(exit["code"].get<int>()) + (why.empty() ? "" : ": " + why);
}

// If `here` is true, only this node was stopped, and the job may still be running on other nodes.
std::string ended_text(const RunningJob& job, bool here) {
  const std::string end = exit_text_of_report(job.status.value("report", ""));
  return std::string(" has ended") + (here ? " on this node" : "") + (end.empty() ? "" : ": " + end) + "\n";
}

const json kStatusQuery{{"ask", "status"}};

[[noreturn]] void fail_without_answer(const RunningJob& job) {
  throw UsageError("the job of process " + std::to_string(job.agent) +
                   " does not answer. If it is suspended (Ctrl-Z), run kill -TERM " + std::to_string(job.agent) +
                   " and resume it (fg): it then stops");
}

// The text that one refresh of `top` shows.
struct JobNow {
  std::string table;
  std::string below;  // a line about nodes that have not answered
};

JobNow now_of(RunningJob& job, const JobRequest& request) {
  if (!queries_all_nodes(job, request)) {
    query_gpus(job);
    return {status_text(job, {job.status}), ""};
  }
  ClusterAnswers nodes = query_nodes(job, kStatusQuery);
  query_gpus(job, nodes);
  return {status_of_all(job, nodes), missing_nodes_message(nodes)};
}

std::string top_page(const JobNow& shown) {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1) return shown.table + shown.below;
  ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  return "\x1b[H\x1b[2J" + terminal_page(shown.table, shown.below, size.ws_row, size.ws_col);
}

// Stops every node. If only one node stopped, the others would treat it as a node that has left, and continue. Returns false if
// the agent did not answer.
bool stop_all_nodes(const RunningJob& job, bool now) {
  const ClusterAnswers nodes = query_nodes(job, {{"ask", now ? "stop now" : "stop"}});
  if (!nodes.agent_answered) return false;
  const bool stops =
      std::any_of(nodes.answers.begin(), nodes.answers.end(), [](const json& node) { return node.value("stops", false); });
  if (stops) return true;
  throw UsageError(nodes.of == 0 ? "the job cannot be stopped on all nodes, since it has no coordinator at the moment: try "
                                   "again in a few seconds, or stop only this node with --here"
                                 : "the coordinating node does not answer: try again, or stop only this node with --here");
}

// Returns why the agent on this machine is not healthy, or "" if it is healthy. A job that restarts its workers is healthy,
// since the agent handles the failure. `ddprun status --healthy`, which Kubernetes can run as a probe, uses this function.
std::string health_problem(const std::string& job_name) {
  try {
    const RunningJob job = chosen_job(job_name, Agents::kAnyOfTheJob);
    if (text_of(job.status, "state") != "ending") return "";
    return "the job ends after a failure: " + printable(text_of(job.status, "last_failure"));
  } catch (const UsageError& error) {
    const std::string message = error.what();
    return message.substr(0, message.find('\n'));
  }
}

// Waits until the node has left the job. The agent of `job`, which forwards our queries, may belong to the leaving node, and
// end while we wait.
void wait_until_left(const RunningJob& job, const ChosenNode& node) {
  const Descriptor agent(static_cast<int>(::syscall(SYS_pidfd_open, job.agent, 0)));
  const bool is_own = node.agent == number_of(job.status, "pid") && node.host == text_of(job.status, "host");
  const json query{{"ask", "status"}, {"to", node.name}};
  for (;;) {
    pollfd end{agent.get(), POLLIN, 0};
    ::poll(&end, 1, kRefreshMs);
    if (agent.get() < 0 || end.revents != 0) break;
    const ClusterAnswers now = query_nodes(job, query);
    const bool has_left = now.of > 0 && now.answers.empty();
    if (has_left && !is_own)
      return print(node.host + " has left the job, which continues on " + std::to_string(now.of) +
                   (now.of == 1 ? " node\n" : " nodes\n"));
  }
  print(is_own ? node.host + " has left the job\n" : text_of(job.status, "title") + ended_text(job, false));
}

// Makes one node save and leave the job. The other nodes continue.
void stop_node(const RunningJob& job, const std::string& word, bool now) {
  if (!job.status.value("several_nodes", false))
    throw UsageError("--node cannot be used, since the job runs on one machine only: run ddprun stop without --node");
  constexpr int kTries = 5;  // a loaded node may answer late
  ClusterAnswers nodes = query_nodes(job, kStatusQuery);
  for (int tries = 1; tries < kTries && nodes.agent_answered && (nodes.of == 0 || nodes.silent() > 0); ++tries)
    nodes = query_nodes(job, kStatusQuery);
  if (!nodes.agent_answered) fail_without_answer(job);
  if (nodes.of == 0) throw UsageError("the job has no coordinator at the moment: try again in a few seconds");
  const ChosenNode node = choose_node(nodes, word);
  refuse_too_few_nodes(nodes, node);
  const ClusterAnswers answer = query_nodes(job, {{"ask", now ? "stop now" : "stop"}, {"to", node.name}});
  const bool stops = std::ranges::any_of(answer.answers, [](const json& one) { return one.value("stops", false); });
  if (!stops) throw UsageError(node.host + " does not answer: try again, or send SIGTERM to its ddprun");
  wait_until_left(job, node);
}

}  // namespace

int list_jobs(const SubcommandArguments& arguments) {
  arguments.refuse_words();
  const std::vector<RunningJob> jobs = running_jobs();
  if (arguments.has("--json")) {
    for (const RunningJob& job : jobs) {
      print((job.status.is_null() ? json{{"pid", job.agent}, {"state", "no answer"}} : job.status).dump() + "\n");
    }
  } else {
    print(jobs.empty() ? "none of your jobs is running on this machine\n" : table_of(jobs));
  }
  return 0;
}

int show_status(const SubcommandArguments& arguments) {
  answer_on_first_host(arguments, "status");
  if (const auto answer = answer_of_slurm_job(arguments, "status")) return *answer;
  const JobRequest request(arguments);
  arguments.refuse_both("--json", "--openmetrics");
  if (request.has("--healthy")) {
    arguments.refuse_both("--healthy", "--json");
    arguments.refuse_both("--healthy", "--openmetrics");
    const std::string problem = health_problem(request.job);
    if (!problem.empty()) std::fprintf(stderr, "ddprun: not healthy: %s\n", problem.c_str());
    return problem.empty() ? 0 : 1;
  }
  RunningJob job = chosen_job(request.job, agents_of(request));
  if (!queries_all_nodes(job, request)) {
    if (!request.has("--openmetrics")) query_gpus(job);
    print(request.has("--openmetrics") ? openmetrics_of(job.status, {job.status})
          : request.has("--json")      ? job.status.dump() + "\n"
                                       : status_text(job, {job.status}));
    return 0;
  }
  ClusterAnswers nodes = query_nodes(job, kStatusQuery);
  if (!request.has("--openmetrics")) query_gpus(job, nodes);
  if (request.has("--openmetrics")) {
    print(openmetrics_of(job.status, nodes.answers.empty() ? std::vector<json>{job.status} : nodes.answers));
    return 0;
  }
  if (!request.has("--json")) {
    print(status_of_all(job, nodes) + missing_nodes_message(nodes));
    return 0;
  }
  json status = job.status;
  status["job"] = {{"answered", nodes.answers.size()}, {"of", nodes.of}, {"nodes", nodes.answers}};
  print(status.dump() + "\n");
  return 0;
}

int watch_job(const SubcommandArguments& arguments) {
  const JobRequest request(arguments);
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
    const auto answer = query_job(job.socket, kStatusRequest);
    json status = answer ? json::parse(*answer, nullptr, false) : json();
    if (status.is_object()) {
      job.status = std::move(status);
      shown = now_of(job, request);
    } else {
      shown.below = "process " + std::to_string(job.agent) + " does not answer: it may be suspended (Ctrl-Z) or ending\n";
    }
  }
  print("the job" + ended_text(job, job.status.value("several_nodes", false)));
  return 0;
}

int stop_job(const SubcommandArguments& arguments) {
  answer_on_first_host(arguments, "stop");
  if (const auto answer = answer_of_slurm_job(arguments, "stop")) return *answer;
  const JobRequest request(arguments);
  const RunningJob job = chosen_job(request.job, agents_of(request));
  if (const auto node = arguments.value("--node", "the host name or the rank of a node")) {
    arguments.refuse_both("--node", "--here");
    stop_node(job, *node, request.has("--now"));
    return 0;
  }
  const bool agent_answered = queries_all_nodes(job, request)
                                  ? stop_all_nodes(job, request.has("--now"))
                                  : query_job(job.socket, request.has("--now") ? kStopNowRequest : kStopRequest).has_value();
  // An agent that is already exiting might not answer, so we wait for it to end before we report an error.
  if (!agent_answered && !ends_within(kStopWait, job.agent)) fail_without_answer(job);
  wait_for_end_of(job.agent);
  print(text_of(job.status, "title") + ended_text(job, job.status.value("several_nodes", false) && request.has("--here")));
  return 0;
}

}  // namespace ddprun
