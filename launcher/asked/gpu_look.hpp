// What the GPUs that this node's workers see do, for whoever asks: `ddprun gpus --json` tells it, as a process of its own. NVML
// may take long, or wait in the kernel for a broken driver, and is another's code: the agent, which keeps a lease, neither
// loads it nor waits. Nothing runs unless somebody asks, and where there is no NVML nothing is started a second time. One
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

  // `then` gets {"gpus":[...]} as `ddprun gpus --json` prints it, within two seconds. Several who ask at a time get one answer.
  void ask(Then then);

 private:
  void hear(const std::string& output, const std::string& trouble);

  boost::asio::io_context& io_;
  bool none_ = false;  // no NVML is here
  std::vector<Then> waiting_;
  std::unique_ptr<ToolRun> run_;
};

}  // namespace ddprun
