#include "launcher/query/cluster/gpu_probe.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/asio/post.hpp>

namespace ddprun {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kTimeout{2000};

// Returns the last line of the output that is a JSON object, since a library may have printed other lines before it.
json parse_answer(const std::string& output) {
  json answer;
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = std::min(output.find('\n', at), output.size());
    if (json line = json::parse(output.substr(at, end - at), nullptr, false); line.is_object()) answer = std::move(line);
    at = end + 1;
  }
  return answer;
}

}  // namespace

void GpuProbe::query(Then then) {
  if (not_installed_) return then({{"gpus", json::array()}});
  waiting_.push_back(std::move(then));
  if (run_) return;
  run_ = std::make_unique<ToolRun>(
      io_, std::vector<std::string>{"/proc/self/exe", "gpus", "--json"}, kTimeout,
      ToolRun::Hooks{.done = [this](const std::string& output, const std::string& problem) { on_output(output, problem); }});
}

void GpuProbe::on_output(const std::string& output, const std::string& problem) {
  json answer = problem.empty() ? parse_answer(output) : json();
  if (!answer.is_object() || !answer.contains("gpus")) {
    answer = {{"gpus", json::array()},
              {"error", "NVML " + (problem.empty() ? "terminated the process that queried it" : problem)}};
  }
  not_installed_ = !answer.value("nvml", true);
  const std::vector<Then> waiting = std::exchange(waiting_, {});
  // The ToolRun calls this function, so the ToolRun must not be destroyed here. The posted function destroys it afterwards.
  boost::asio::post(io_, [run = std::shared_ptr<ToolRun>(std::move(run_))] {});
  for (const Then& then : waiting) then(answer);
}

}  // namespace ddprun
