// Implementation of agent_settings.hpp.
#include "launcher/agent/agent_settings.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "launcher/machine/detect.hpp"
#include "launcher/output/worker_output_files.hpp"

namespace ddprun {
namespace {

// Round numbers continue over the invocations of a run directory: one more than the newest logs/round-NNN.
int first_round_in(const std::filesystem::path& log_root, LogLayout layout) {
  int next = 0;
  if (layout != LogLayout::kRounds) return next;  // each run has its own folder
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(log_root, error)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "round-";
    int round = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), round).ec == std::errc{}) {
      next = std::max(next, round + 1);
    }
  }
  return next;
}

// A spare uses one processor for some seconds while it loads. So as many load at the same time as there are processors that no
// worker uses. If there are none, one loads in the idle scheduling class.
int spares_at_once(const Plan& plan) {
  if (plan.kind == Plan::Kind::kTrain || plan.standbys <= 1) return 1;
  return std::clamp(count_cpus().usable() - plan.nproc_per_node, 1, plan.standbys);
}

}  // namespace

AgentSettings agent_settings(const Plan& plan, const AgentFiles& files, AgentSettings::Mode mode) {
  return {.world_size = plan.nproc_per_node,
          .mode = mode,
          .workers_have_channel = plan.kind == Plan::Kind::kTrain,
          .first_round = first_round_in(files.log_root, files.layout),
          .shutdown_timeout = plan.shutdown_timeout,
          .restarts = restart_limits(plan),
          .regroup_limit = plan.regroup_limit,
          .standbys = plan.standbys,
          .spares_at_once = spares_at_once(plan)};
}

WorkerOutputSettings output_settings(const Plan& plan, const AgentFiles& files) {
  WorkerOutputSettings settings{.log_root = files.log_root, .layout = files.layout, .workers = plan.nproc_per_node};
  if (plan.kind != Plan::Kind::kTrain) {
    settings.script = plan.output;
    settings.kept = files.log_root.empty() ? KeptFiles::kNone : kept_files(plan);
  }
  return settings;
}

HangSettings hang_settings(const Plan& plan) {
  return {.limits = plan.hang,
          .channel = plan.kind == Plan::Kind::kTrain,
          .python = plan.kind == Plan::Kind::kPython || plan.kind == Plan::Kind::kModule};
}

}  // namespace ddprun
