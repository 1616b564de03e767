// A program that the agent asks for something and that may take long or get stuck: it runs beside the event loop and is given
// up after a while. One that is slow to die is reaped later by the event loop, and nobody waits for it. stack_tool.cpp reads
// call stacks so, launcher/asked/gpu_look.cpp the use of GPUs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace ddprun {

class ToolRun {
 public:
  struct Hooks {
    // Called once, with all that it printed and what went wrong, or ""; never after the ToolRun is destroyed.
    std::function<void(const std::string& output, const std::string& trouble)> done;
    // It is reaped, with that status; this may come later, when the ToolRun is gone. May be empty.
    std::function<void(int status)> reaped{};
  };
  ToolRun(boost::asio::io_context& io, const std::vector<std::string>& command, std::chrono::milliseconds at_most, Hooks hooks);
  ~ToolRun();
  ToolRun(const ToolRun&) = delete;
  ToolRun& operator=(const ToolRun&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
