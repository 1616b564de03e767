// The call stack of another process's main thread, by a tool of the machine: py-spy for Python, else eu-stack, else gdb. Runs
// beside the agent's loop and is given up after a few seconds; hang_inquiry.cpp asks for one rank after the other. The process
// goes on afterwards if it did before. A tool that is slow to die is waited for by the loop's events only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace ddprun {

struct StackTool {
  std::string name;  // "gdb"; empty: none is installed
  std::string path;
};
// `python`: whether the workers are Python's. Looks along PATH.
StackTool find_stack_tool(bool python);

// The tool's command line for that process.
std::vector<std::string> stack_command(const StackTool& tool, long pid);
// Frames out of what the tool printed: at most 40 lines of at most 200 characters. Pure.
std::vector<std::string> frames_in(const std::string& output);

class StackRun {
 public:
  // `done` is called once, with the frames, or with one line that says why there are none; never after the end of this object.
  StackRun(boost::asio::io_context& io, const StackTool& tool, long pid, std::chrono::milliseconds at_most,
           std::function<void(std::vector<std::string>)> done);
  ~StackRun();
  StackRun(const StackRun&) = delete;
  StackRun& operator=(const StackRun&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
