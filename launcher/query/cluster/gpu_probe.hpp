// Queries the GPU usage of this node's workers. Use it on one thread only.
//
// NVML is third-party code. It may be slow, or hang in the kernel if a driver is broken. The agent must renew its lease in
// time, so it neither loads NVML nor waits for it. Instead the agent starts itself as `ddprun gpus --json`, a separate process
// with a time limit. Such a process runs only on request. If it reports that NVML is not installed, it is not started again.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "launcher/hang/tool_run.hpp"

namespace ddprun {

class GpuProbe {
 public:
  using Then = std::function<void(const nlohmann::json&)>;
  explicit GpuProbe(boost::asio::io_context& io) : io_(io) {}

  // `then` receives {"gpus":[...]}, as printed by `ddprun gpus --json`, within two seconds. Requests that arrive during a run
  // share its answer.
  void query(Then then);

 private:
  void on_output(const std::string& output, const std::string& problem);

  boost::asio::io_context& io_;
  bool not_installed_ = false;  // a run has reported that NVML is not installed on this node
  std::vector<Then> waiting_;
  std::unique_ptr<ToolRun> run_;
};

}  // namespace ddprun
