// Decides which node gets which group rank (rank of a node) in a round. A node gets its old group rank again if possible.
// Worker ranks are contiguous by group rank, as in torchrun. The result has one entry for each node; ranks.hpp computes the
// ranks of single workers. The code is pure (no I/O, no clock). The coordinator calls it once per round.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

struct Participant {
  std::int32_t kept_rank = -1;  // group rank in the last round, or the requested group rank; -1: any rank
  std::string role = "default";
  std::int32_t workers = 1;
};

struct NodeRanks {
  std::size_t participant = 0;  // index in `participants`
  std::int32_t rank_offset = 0;
  std::int32_t role_rank_offset = 0;
};

struct Placement {
  std::vector<NodeRanks> ranks;  // one entry for each group rank; the index is the group rank
  std::int32_t world_size = 0;
  std::map<std::string, std::int32_t> role_sizes;
};

// Assigns group ranks. `participants` are sorted by preference; the participants beyond max_nodes get no rank. A participant
// keeps its rank if the rank is below the number of nodes and no earlier participant has it. The other participants get the
// free ranks in ascending order: first the participants with an old rank, then the new participants. Example: of the nodes
// with ranks 0, 1 and 2, node 1 is lost and a new node joins. The new node gets rank 1.
Placement place(std::span<const Participant> participants, std::int32_t max_nodes, const Rules& rules = {});

}  // namespace ddprun::rendezvous
