// Decides which node gets which ranks in a round. A node keeps its group rank if possible. Worker ranks are counted
// contiguously by group rank, as in torchrun and ranks.hpp, but with one entry per node. Pure; the coordinator calls it once
// per round.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

struct Participant {
  std::int32_t kept_rank = -1;  // its rank in the last round, or the requested one; -1: any
  std::string role = "default";
  std::int32_t workers = 1;
};

struct NodeRanks {
  std::size_t participant = 0;  // its index in `participants`
  std::int32_t rank_offset = 0;
  std::int32_t role_rank_offset = 0;
};

struct Placement {
  std::vector<NodeRanks> ranks;  // the index is the group rank
  std::int32_t world_size = 0;
  std::map<std::string, std::int32_t> role_sizes;
};

// `participants` are in the order of preference; those beyond max_nodes get no rank. A participant keeps its rank if the rank
// is below the number of nodes and no earlier participant has it. The others fill the holes from below, first those with an old
// rank, then the new ones.
Placement place(std::span<const Participant> participants, std::int32_t max_nodes, const Rules& rules = {});

}  // namespace ddprun::rendezvous
