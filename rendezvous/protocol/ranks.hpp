// Computes the ranks of all workers of a round from the list of its nodes. The order is the same as in torchrun: global ranks
// are contiguous by group rank, and role ranks are counted within a role. Example: if two nodes have two workers each, node 1
// has the global ranks 2 and 3. The code is pure (no I/O, no clock). The agent calls assign_ranks() to get the ranks of this
// node's workers.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddprun {

// A node of the round: its role and its number of workers.
struct NodeShare {
  std::string role = "default";
  int local_world_size = 1;
};

struct RankAssignment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int group_rank = 0;  // the rank of the node in the round
  int group_world_size = 1;
  int role_rank = 0;
  int role_world_size = 1;
  std::string role = "default";

  bool operator==(const RankAssignment&) const = default;
};

// Returns all workers of the round; the index is the global rank. `nodes` are in the order of their group ranks. Throws
// std::invalid_argument for a node without workers.
std::vector<RankAssignment> assign_ranks(std::span<const NodeShare> nodes);

}  // namespace ddprun
