#include "launcher/agent/node_ranks.hpp"

#include <span>
#include <string>

namespace ddprun {

std::vector<RankAssignment> ranks_of_node(const Plan& plan, const rendezvous::Release* release) {
  const NodeShare here{.role = plan.role, .local_world_size = plan.nproc_per_node};
  std::vector<RankAssignment> ranks = assign_ranks(std::span(&here, 1));
  if (release == nullptr) return ranks;
  for (RankAssignment& one : ranks) {
    one.rank += release->rank_offset;
    one.world_size = release->world_size;
    one.group_rank = release->group_rank;
    one.group_world_size = release->nodes;
    one.role_rank += release->role_rank_offset;
    one.role_world_size = release->role_world_size;
  }
  return ranks;
}

WorkerSettings planned_settings(const Plan& plan, const RankAssignment& ranks) {
  WorkerSettings settings;
  settings.ranks = ranks;
  settings.max_restarts = plan.max_restarts;
  settings.agent_store = plan.agent_store;
  settings.run_id = plan.run_id;
  settings.channel = plan.kind == Plan::Kind::kTrain ? ChannelUse::kGiven : ChannelUse::kOffered;
  settings.signals_to_handle = plan.signals_to_handle;
  settings.chaos = plan.chaos;
  settings.interface = plan.interface;
  settings.threads = plan.threads_per_worker;
  const PortRange& ports = plan.rendezvous.port_range;
  if (ports.given()) settings.port_range = std::to_string(ports.low) + "-" + std::to_string(ports.high);
  return settings;
}

}  // namespace ddprun
