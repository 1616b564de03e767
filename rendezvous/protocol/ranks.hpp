// The ranks of all workers of a round, from its nodes in group-rank order. Pure; the agent calls it for its own node. The order
// is that of torchrun: global ranks are contiguous by group rank, and role ranks are counted within a role.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddprun {

// One node's share of the workers.
struct NodeShare {
  std::string role = "default";
  int local_world_size = 1;
};

struct RankAssignment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int group_rank = 0;  // the node's number in the round
  int group_world_size = 1;
  int role_rank = 0;
  int role_world_size = 1;
  std::string role = "default";

  bool operator==(const RankAssignment&) const = default;
};

// All ranks of the round; the index is the global rank. Throws std::invalid_argument for a node without workers.
std::vector<RankAssignment> assign_ranks(std::span<const NodeShare> nodes);

}  // namespace ddprun
