// Implementation of gpu_look.hpp.
#include "launcher/asked/gpu_look.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/asio/post.hpp>

namespace ddprun {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kAtMost{2000};

// The last line that is a JSON object: a library may have printed other lines before it.
json answer_in(const std::string& output) {
  json answer;
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = std::min(output.find('\n', at), output.size());
    if (json line = json::parse(output.substr(at, end - at), nullptr, false); line.is_object()) answer = std::move(line);
    at = end + 1;
  }
  return answer;
}

}  // namespace

void GpuLook::ask(Then then) {
  if (none_) return then({{"gpus", json::array()}});
  waiting_.push_back(std::move(then));
  if (run_) return;
  run_ = std::make_unique<ToolRun>(
      io_, std::vector<std::string>{"/proc/self/exe", "gpus", "--json"}, kAtMost,
      ToolRun::Hooks{.done = [this](const std::string& output, const std::string& trouble) { hear(output, trouble); }});
}

void GpuLook::hear(const std::string& output, const std::string& trouble) {
  json answer = trouble.empty() ? answer_in(output) : json();
  if (!answer.is_object() || !answer.contains("gpus")) {
    answer = {{"gpus", json::array()}, {"error", "NVML " + (trouble.empty() ? "has ended its process" : trouble)}};
  }
  none_ = !answer.value("nvml", true);
  const std::vector<Then> waiting = std::exchange(waiting_, {});
  // Posted, since the run that calls this must end before it is destroyed.
  boost::asio::post(io_, [run = std::shared_ptr<ToolRun>(std::move(run_))] {});
  for (const Then& then : waiting) then(answer);
}

}  // namespace ddprun
