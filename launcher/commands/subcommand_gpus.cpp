// `ddprun gpus`: prints the current usage of the GPUs that jobs on this machine can use. Agents run it as a separate process
// when the status of their workers is requested (launcher/query/cluster/gpu_probe.hpp).
#include <cstdlib>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/printable.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/chosen_job.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/machine/detect_gpus.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json as_json(const std::optional<std::vector<GpuUse>>& uses) {
  json gpus = json::array();
  for (const GpuUse& use : uses.value_or(std::vector<GpuUse>{})) {
    gpus.push_back({{"uuid", use.uuid},
                    {"percent", or_null(use.percent)},
                    {"memory_used_bytes", or_null(use.used_bytes)},
                    {"memory_total_bytes", or_null(use.total_bytes)},
                    {"pids", use.pids}});
  }
  return {{"nvml", uses.has_value()}, {"gpus", gpus}};
}

}  // namespace

int show_gpus(const SubcommandArguments& arguments) {
  arguments.refuse_words();
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto uses = use_of_gpus(visible != nullptr ? std::optional<std::string>(visible) : std::nullopt);
  const json document = as_json(uses);
  if (arguments.has("--json")) {
    print(document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  } else if (!uses) {
    print("no information about GPUs: NVML (libnvidia-ml.so.1) is not installed or does not answer\n");
  } else if (uses->empty()) {
    print("no GPU is visible to CUDA on this machine\n");
  } else {
    for (std::size_t i = 0; i < uses->size(); ++i)
      print(std::to_string(i) + "  " + printable((*uses)[i].uuid) + "  " + gpu_text(document["gpus"][i]) + "\n");
  }
  return 0;
}

}  // namespace ddprun
