// Implementation of node_ranks.hpp.
#include "launcher/agent/node_ranks.hpp"

#include <span>

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

}  // namespace ddprun
