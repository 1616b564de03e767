// Reads the use of the GPUs that this node's workers see, through `ddprun gpus --json` as a separate process. NVML is
// third-party code that may be slow, or hang in the kernel with a broken driver. The agent has to keep a lease, so it neither
// loads NVML nor waits for it. Nothing runs unless the use is requested, and without NVML nothing is started a second time. One
// thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "launcher/hang/tool_run.hpp"

namespace ddprun {

class GpuLook {
 public:
  using Then = std::function<void(const nlohmann::json&)>;
  explicit GpuLook(boost::asio::io_context& io) : io_(io) {}

  // `then` receives {"gpus":[...]} as printed by `ddprun gpus --json`, within two seconds. Concurrent requests share one
  // answer.
  void ask(Then then);

 private:
  void hear(const std::string& output, const std::string& trouble);

  boost::asio::io_context& io_;
  bool none_ = false;  // NVML is not installed here
  std::vector<Then> waiting_;
  std::unique_ptr<ToolRun> run_;
};

}  // namespace ddprun
