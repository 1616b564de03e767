// Implementation of ranks.hpp: the first pass counts the workers of each role, and the second pass assigns the ranks.
#include "rendezvous/protocol/ranks.hpp"

#include <map>
#include <stdexcept>

namespace ddprun {

std::vector<RankAssignment> assign_ranks(std::span<const NodeShare> nodes) {
  std::map<std::string, int> role_sizes;
  int world_size = 0;
  for (const NodeShare& node : nodes) {
    if (node.local_world_size < 1) {
      throw std::invalid_argument("a node of role '" + node.role + "' has " + std::to_string(node.local_world_size) +
                                  " workers; expected at least 1");
    }
    role_sizes[node.role] += node.local_world_size;
    world_size += node.local_world_size;
  }

  std::vector<RankAssignment> ranks;
  ranks.reserve(static_cast<std::size_t>(world_size));
  std::map<std::string, int> next_role_rank;
  int group_rank = 0;
  for (const NodeShare& node : nodes) {
    for (int local_rank = 0; local_rank < node.local_world_size; ++local_rank) {
      ranks.push_back({.rank = static_cast<int>(ranks.size()),
                       .world_size = world_size,
                       .local_rank = local_rank,
                       .local_world_size = node.local_world_size,
                       .group_rank = group_rank,
                       .group_world_size = static_cast<int>(nodes.size()),
                       .role_rank = next_role_rank[node.role]++,
                       .role_world_size = role_sizes[node.role],
                       .role = node.role});
    }
    ++group_rank;
  }
  return ranks;
}

}  // namespace ddprun
