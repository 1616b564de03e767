// Reads the call stack of another process's main thread with a tool that is installed on this machine: py-spy for Python, else
// eu-stack, else gdb. The tool runs in parallel to the agent's event loop (tool_run.hpp) and is killed after a few seconds.
// hang_monitor.cpp reads the stack of one rank at a time. If a killed tool has left the process suspended, the process is
// resumed.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "launcher/hang/tool_run.hpp"

namespace ddprun {

struct StackTool {
  std::string name;  // such as "gdb"; empty if no tool is installed
  std::string path;
};
// Finds the tool in PATH. `python` is true if the workers are Python programs.
StackTool find_stack_tool(bool python);

// Returns the command line with which the tool prints the stack of the process `pid`.
std::vector<std::string> stack_command(const StackTool& tool, long pid);
// Returns the stack frames in the tool's output: at most 40 lines of at most 200 characters. The code is pure: no I/O, no
// clock.
std::vector<std::string> frames_in(const std::string& output);

class StackRun {
 public:
  // Calls `done` once, with the frames or with one line that explains why there are none. Never calls it after this object is
  // destroyed.
  StackRun(boost::asio::io_context& io, const StackTool& tool, long pid, std::chrono::milliseconds at_most,
           std::function<void(std::vector<std::string>)> done);

 private:
  ToolRun run_;
};

}  // namespace ddprun
