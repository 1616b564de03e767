// `ddprun stacks` prints the current call stacks of a running job's workers. `ddprun attach` attaches a debugger to one worker
// on this machine. run_subcommand() calls them. Reading a stack needs py-spy, eu-stack or gdb, and permission to trace: root,
// or kernel.yama.ptrace_scope=0.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <boost/asio/io_context.hpp>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/chosen_job.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/hang/stack_tool.hpp"
#include "launcher/query/local/job_nodes.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kStackTimeout{20};
constexpr std::chrono::seconds kClusterTimeout{30};

struct RunningWorker {
  int rank = 0;
  long pid = 0;
};

// Returns all workers that have not ended, or only the worker with --rank. Throws UsageError if there is none.
std::vector<RunningWorker> running_workers(const RunningJob& job, std::optional<int> rank) {
  if (number_of(job.status, "pid") != job.agent) {
    throw UsageError("the job runs in a container with its own process ids: run this command in that container");
  }
  std::vector<RunningWorker> workers;
  for (const json& worker : job.status.value("workers", json::array())) {
    const RunningWorker one{worker.value("rank", -1), worker.value("pid", 0L)};
    if (worker.value("state", "") == "running" && one.pid > 0 && (!rank || one.rank == *rank)) workers.push_back(one);
  }
  if (workers.empty()) {
    throw UsageError(rank ? "no worker with rank " + std::to_string(*rank) + " of the job is running on this machine"
                          : std::string("no worker of the job is running at the moment"));
  }
  return workers;
}

bool is_python(const RunningJob& job) {
  const std::string kind = job.status.value("kind", "");
  return kind == "script" || kind == "module";
}

StackTool tool_for(const RunningJob& job) {
  StackTool tool = find_stack_tool(is_python(job));
  if (tool.name.empty()) {
    throw UsageError(
        "no stack tool was found: expected py-spy, eu-stack or gdb on PATH; install one with pip install py-spy or apt "
        "install elfutils");
  }
  return tool;
}

std::vector<std::string> stack_of(const StackTool& tool, long pid) {
  boost::asio::io_context io;
  std::vector<std::string> frames;
  const StackRun run(io, tool, pid, kStackTimeout, [&](std::vector<std::string> found) {
    frames = std::move(found);
    io.stop();
  });
  io.run();
  return frames;
}

int print_stacks_of_this_node(const RunningJob& job, std::optional<int> rank) {
  const std::vector<RunningWorker> workers = running_workers(job, rank);
  const StackTool tool = tool_for(job);
  for (const RunningWorker& worker : workers) {
    print("rank " + std::to_string(worker.rank) + ", process " + std::to_string(worker.pid) + ", by " + tool.name + ":\n");
    for (const std::string& frame : stack_of(tool, worker.pid)) print("  " + frame + "\n");
  }
  return 0;
}

// Prints the stacks of one node. Returns the number of workers in its answer, including workers omitted to limit the answer's
// size.
std::int64_t print_stacks(const json& node) {
  std::int64_t shown = 0;
  const std::string host = node.contains("host") ? text_of(node, "host") : "?";
  if (node.contains("error")) print(host + ": " + text_of(node, "error") + "\n");
  if (const auto stacks = node.find("stacks"); stacks != node.end() && stacks->is_array()) {
    for (const json& stack : *stacks) {
      if (!stack.is_object()) continue;
      print("rank " + std::to_string(number_of(stack, "rank")) + " on " + host + ", process " +
            std::to_string(number_of(stack, "pid")) + ", by " + text_of(stack, "tool") + ":\n");
      if (const auto frames = stack.find("frames"); frames != stack.end() && frames->is_array()) {
        for (const json& frame : *frames)
          if (frame.is_string()) print("  " + printable(frame.get<std::string>()) + "\n");
      }
      ++shown;
    }
  }
  if (const auto more = number_of(node, "left_out"); more > 0) {
    print(host + ": " + std::to_string(more) +
          " more workers were omitted, since the answer would be too long: select one with --rank\n");
    shown += more;
  }
  return shown;
}

// Prints the stacks of all nodes; each node reads the stacks of the workers on it.
int print_stacks_of_nodes(const RunningJob& job, std::optional<int> rank) {
  const json question = rank ? json{{"ask", "stacks"}, {"rank", *rank}} : json{{"ask", "stacks"}};
  const ClusterAnswers nodes = query_nodes(job, question, kClusterTimeout);
  if (nodes.answers.empty()) {
    print(missing_nodes_message(nodes));
    return print_stacks_of_this_node(job, rank);
  }
  std::int64_t shown = 0;
  for (const json& node : nodes.answers) shown += print_stacks(node);
  print(missing_nodes_message(nodes));
  if (shown > 0 || nodes.silent() > 0) return 0;
  // A node that reports an error could not read any stack, so it is unknown whether the rank exists.
  if (std::ranges::any_of(nodes.answers, [](const json& node) { return node.contains("error"); }))
    return static_cast<int>(ExitCode::kUsage);
  throw UsageError(rank ? "no worker with rank " + std::to_string(*rank) + " of the job is running at the moment"
                        : std::string("no worker of the job is running at the moment"));
}

}  // namespace

int show_stacks(const SubcommandArguments& arguments) {
  const JobRequest request(arguments);
  const RunningJob job = chosen_job(request.job, agents_of(request));
  if (queries_all_nodes(job, request)) return print_stacks_of_nodes(job, request.rank);
  return print_stacks_of_this_node(job, request.rank);
}

int attach_to_worker(const SubcommandArguments& arguments) {
  const JobRequest request(arguments);
  if (!request.rank) arguments.refuse("--rank is required");
  arguments.refuse_both("--gdb", "--py-spy");
  const RunningJob job = chosen_job(request.job);
  const std::string pid = std::to_string(running_workers(job, request.rank).front().pid);
  const bool spy = request.has("--py-spy");
  const char* const program = spy ? "py-spy" : "gdb";
  if (spy) {
    ::execlp(program, program, "top", "--pid", pid.c_str(), nullptr);
  } else {
    ::execlp(program, program, "-p", pid.c_str(), nullptr);
  }
  throw UsageError(std::string("cannot start ") + program + ": " + std::strerror(errno) +
                   (spy ? "; pip install py-spy" : "; apt install gdb"));
}

}  // namespace ddprun
