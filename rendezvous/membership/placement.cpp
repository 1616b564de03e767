// Implementation of placement.hpp. First each node gets its old rank again, if possible. Then the other nodes fill the free
// ranks. At the end the workers are counted.
#include "rendezvous/membership/placement.hpp"

#include <algorithm>
#include <limits>

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kEmpty = std::numeric_limits<std::size_t>::max();

std::vector<std::size_t> participants_by_rank(std::span<const Participant> chosen, const Rules& rules) {
  std::vector<std::size_t> by_rank(chosen.size(), kEmpty);
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::int32_t kept = chosen[i].kept_rank;
    const bool free =
        kept >= 0 && static_cast<std::size_t>(kept) < by_rank.size() && by_rank[static_cast<std::size_t>(kept)] == kEmpty;
    if (free) {
      by_rank[static_cast<std::size_t>(kept)] = i;
    } else {
      others.push_back(i);
    }
  }
  if (!rules.holes_are_filled) {  // Only a test turns this rule off. Free ranks then stay empty.
    for (const std::size_t i : others) by_rank.push_back(i);
    return by_rank;
  }
  std::stable_sort(others.begin(), others.end(), [&](std::size_t a, std::size_t b) {
    const auto key = [&](std::size_t i) {
      return chosen[i].kept_rank < 0 ? std::numeric_limits<std::int32_t>::max() : chosen[i].kept_rank;
    };
    return key(a) < key(b);
  });
  auto next = others.begin();
  for (std::size_t& holder : by_rank) {
    if (holder == kEmpty) holder = *next++;
  }
  return by_rank;
}

}  // namespace

Placement place(std::span<const Participant> participants, std::int32_t max_nodes, const Rules& rules) {
  const auto chosen = participants.first(std::min(participants.size(), static_cast<std::size_t>(std::max(max_nodes, 0))));
  Placement placement;
  for (const std::size_t i : participants_by_rank(chosen, rules)) {
    if (i == kEmpty) {
      placement.ranks.push_back(NodeRanks{.participant = participants.size()});
      continue;
    }
    std::int32_t& role_size = placement.role_sizes[chosen[i].role];
    placement.ranks.push_back({.participant = i, .rank_offset = placement.world_size, .role_rank_offset = role_size});
    placement.world_size += chosen[i].workers;
    role_size += chosen[i].workers;
  }
  return placement;
}

}  // namespace ddprun::rendezvous
