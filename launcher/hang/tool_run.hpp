// Runs an external tool that may take long or hang. It runs in parallel to the event loop and is killed after a time limit. If
// the tool is slow to exit, the event loop reaps it later without blocking. stack_tool.cpp uses it to read call stacks, and
// launcher/query/cluster/gpu_probe.cpp uses it to read the usage of GPUs.
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
    // Called once, with the tool's whole output and the error, which is "" on success. Never called after the ToolRun is
    // destroyed.
    std::function<void(const std::string& output, const std::string& problem)> done;
    // Called with the tool's status when the tool is reaped. This may happen after the ToolRun is destroyed. This function may
    // be empty.
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
