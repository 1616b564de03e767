// `ddprun stacks` and `ddprun attach`: the current call stacks of a running job's workers on this machine, or a debugger.
// run_subcommand() calls them. A stack needs py-spy, eu-stack or gdb, and the right to trace: root, or
// kernel.yama.ptrace_scope=0.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <boost/asio/io_context.hpp>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/chosen_job.hpp"
#include "launcher/commands/job_nodes.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/hang/stack_tool.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kPatience{20};
constexpr std::chrono::seconds kPatienceWithNodes{30};

struct RunningWorker {
  int rank = 0;
  long pid = 0;
};

// All workers that have not ended, or only the one given by --rank. Throws UsageError if there is none.
std::vector<RunningWorker> running_workers(const RunningJob& job, std::optional<int> rank) {
  if (number_of(job.status, "pid") != job.agent) {
    throw UsageError("that job runs in a container with process ids of its own: ask for this within the container");
  }
  std::vector<RunningWorker> workers;
  for (const json& worker : job.status.value("workers", json::array())) {
    const RunningWorker one{worker.value("rank", -1), worker.value("pid", 0L)};
    if (worker.value("state", "") == "running" && one.pid > 0 && (!rank || one.rank == *rank)) workers.push_back(one);
  }
  if (workers.empty()) {
    throw UsageError(rank ? "no worker with rank " + std::to_string(*rank) + " of that job runs on this machine"
                          : std::string("no worker of that job runs at the moment"));
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
    throw UsageError("neither py-spy nor eu-stack nor gdb is on PATH: pip install py-spy, or apt install elfutils");
  }
  return tool;
}

std::vector<std::string> stack_of(const StackTool& tool, long pid) {
  boost::asio::io_context io;
  std::vector<std::string> frames;
  const StackRun run(io, tool, pid, kPatience, [&](std::vector<std::string> found) {
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

// Prints the stacks of one node. Returns the number of workers in its answer, including those left out for size.
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
    print(host + ": " + std::to_string(more) + " more workers, which are too much for one answer: name one with --rank\n");
    shown += more;
  }
  return shown;
}

// Each node reads the stacks of its own workers.
int print_stacks_of_nodes(const RunningJob& job, std::optional<int> rank) {
  const json question = rank ? json{{"ask", "stacks"}, {"rank", *rank}} : json{{"ask", "stacks"}};
  const NodesAnswers nodes = ask_nodes(job, question, kPatienceWithNodes);
  if (nodes.answers.empty()) {
    print(about_silence(nodes));
    return print_stacks_of_this_node(job, rank);
  }
  std::int64_t shown = 0;
  for (const json& node : nodes.answers) shown += print_stacks(node);
  print(about_silence(nodes));
  if (shown > 0 || nodes.silent() > 0) return 0;
  // A node that could not read a stack has reported an error, so the rank may exist.
  if (std::ranges::any_of(nodes.answers, [](const json& node) { return node.contains("error"); }))
    return static_cast<int>(ExitCode::kUsage);
  throw UsageError(rank ? "no worker with rank " + std::to_string(*rank) + " of that job runs at the moment"
                        : std::string("no worker of that job runs at the moment"));
}

}  // namespace

int show_stacks(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun stacks [JOB] [--rank N] [--here]";
  constexpr std::array<std::string_view, 3> kAllowed{"JOB", "--rank", "--here"};
  const JobRequest request = parse_job_request(args, kAllowed, kUsage);
  if (request.help) {
    print(std::string(kUsage) +
          "\nPrints the call stack of each worker, by py-spy, eu-stack or gdb, whichever is there. --here: of the workers on"
          "\nthis machine only. JOB as for `ddprun status`.\n");
    return 0;
  }
  const RunningJob job = chosen_job(request.job, agents_of(request));
  if (asks_all_nodes(job, request)) return print_stacks_of_nodes(job, request.rank);
  return print_stacks_of_this_node(job, request.rank);
}

int attach_to_worker(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun attach [JOB] --rank N [--gdb | --py-spy]";
  constexpr std::array<std::string_view, 4> kAllowed{"JOB", "--rank", "--gdb", "--py-spy"};
  const JobRequest request = parse_job_request(args, kAllowed, kUsage);
  if (request.help) {
    print(std::string(kUsage) +
          "\nStarts a debugger on a worker of this machine: gdb, or with --py-spy what its Python code spends time on."
          "\nA worker that gdb holds makes no progress: --hang-timeout may end it. JOB as for `ddprun status`.\n");
    return 0;
  }
  if (!request.rank) throw UsageError(std::string("--rank says which worker; ") + kUsage);
  if (request.has("--gdb") && request.has("--py-spy")) throw UsageError(std::string("--gdb or --py-spy; ") + kUsage);
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
