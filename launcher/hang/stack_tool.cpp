#include "launcher/hang/stack_tool.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "launcher/leftovers/stuck_workers.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxFrames = 40;
constexpr std::size_t kMaxFrameWidth = 200;

std::string program_on_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty()) continue;
    std::string file = folder + "/" + program;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

bool is_frame(const std::string& line) {
  return line.starts_with("#") || line.starts_with("Thread") || line.starts_with("TID") || line.starts_with("    ");
}

}  // namespace

StackTool find_stack_tool(bool python) {
  for (const char* name : {"py-spy", "eu-stack", "gdb"}) {
    if (!python && std::strcmp(name, "py-spy") == 0) continue;
    if (std::string path = program_on_path(name); !path.empty()) return {name, std::move(path)};
  }
  return {};
}

std::vector<std::string> stack_command(const StackTool& tool, long pid) {
  const std::string process = std::to_string(pid);
  if (tool.name == "py-spy") return {tool.path, "dump", "--pid", process};
  if (tool.name == "eu-stack") return {tool.path, "-1", "-p", process};
  // gdb must not read start-up files or fetch symbols from a server.
  return {tool.path, "-nx", "-batch", "-p", process, "-iex", "set debuginfod enabled off", "-ex", "bt 40"};
}

std::vector<std::string> frames_in(const std::string& output) {
  std::vector<std::string> frames;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line) && frames.size() < kMaxFrames;) {
    if (!is_frame(line)) continue;
    frames.push_back(line.size() > kMaxFrameWidth ? line.substr(0, kMaxFrameWidth) + "..." : line);
  }
  return frames;
}

StackRun::StackRun(boost::asio::io_context& io, const StackTool& tool, long pid, std::chrono::milliseconds at_most,
                   std::function<void(std::vector<std::string>)> done)
    : run_(io, stack_command(tool, pid), at_most,
           {.done =
                [name = tool.name, done = std::move(done)](const std::string& output, const std::string& problem) {
                  auto frames = frames_in(output);
                  if (frames.empty()) {
                    std::string last;
                    std::istringstream lines(output);
                    for (std::string line; std::getline(lines, line);)
                      if (!line.empty()) last = line;
                    frames.push_back("no stack: " + name + " " +
                                     (problem.empty() ? "printed: " + last.substr(0, kMaxFrameWidth) : problem));
                  }
                  done(std::move(frames));
                },
            // A debugger stops a process with SIGSTOP when it attaches. If the debugger is killed too early, the process stays
            // stopped.
            .reaped =
                [pid, was_stopped = process_state(pid) == 'T'](int status) {
                  if (WIFSIGNALED(status) && !was_stopped) ::kill(static_cast<pid_t>(pid), SIGCONT);
                }}) {}

}  // namespace ddprun
