#include "launcher/agent/agent_settings.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "launcher/machine/detect.hpp"
#include "launcher/output/worker_output_files.hpp"

namespace ddprun {
namespace {

// Returns the number of this job's first round (a round is one start of all workers): one more than the newest folder
// logs/round-NNN. So the numbers continue when ddprun is started again with the same run directory.
int first_round_in(const std::filesystem::path& log_root, LogLayout layout) {
  int next = 0;
  if (layout != LogLayout::kRounds) return next;  // with the other layout, each call of ddprun creates a new folder
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

// Returns the number of spare interpreters that may load at the same time. A spare uses a processor for some seconds while it
// imports libraries, so each loading spare needs a processor without a worker. If every processor has a worker, one spare
// loads, with the idle scheduling policy.
int max_loading_spares(const Plan& plan) {
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
          .max_loading_spares = max_loading_spares(plan)};
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
