// Implementation of placement.hpp: keep, fill holes, count.
#include "rendezvous/presence/placement.hpp"

#include <algorithm>
#include <limits>

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kEmpty = std::numeric_limits<std::size_t>::max();

std::vector<std::size_t> seats_by_rank(std::span<const Candidate> chosen, const Rules& rules) {
  std::vector<std::size_t> seats(chosen.size(), kEmpty);
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::int32_t kept = chosen[i].kept_rank;
    const bool free =
        kept >= 0 && static_cast<std::size_t>(kept) < seats.size() && seats[static_cast<std::size_t>(kept)] == kEmpty;
    if (free) {
      seats[static_cast<std::size_t>(kept)] = i;
    } else {
      others.push_back(i);
    }
  }
  if (!rules.holes_are_filled) {  // a test breaks this rule: everybody keeps the old rank, and holes stay empty
    for (const std::size_t i : others) seats.push_back(i);
    return seats;
  }
  std::stable_sort(others.begin(), others.end(), [&](std::size_t a, std::size_t b) {
    const auto key = [&](std::size_t i) {
      return chosen[i].kept_rank < 0 ? std::numeric_limits<std::int32_t>::max() : chosen[i].kept_rank;
    };
    return key(a) < key(b);
  });
  auto next = others.begin();
  for (std::size_t& seat : seats) {
    if (seat == kEmpty) seat = *next++;
  }
  return seats;
}

}  // namespace

Placement place(std::span<const Candidate> candidates, std::int32_t max_nodes, const Rules& rules) {
  const auto chosen = candidates.first(std::min(candidates.size(), static_cast<std::size_t>(std::max(max_nodes, 0))));
  Placement placement;
  for (const std::size_t i : seats_by_rank(chosen, rules)) {
    if (i == kEmpty) {
      placement.seats.push_back(Seat{.candidate = candidates.size()});
      continue;
    }
    std::int32_t& role_size = placement.role_sizes[chosen[i].role];
    placement.seats.push_back({.candidate = i, .rank_offset = placement.world_size, .role_rank_offset = role_size});
    placement.world_size += chosen[i].workers;
    role_size += chosen[i].workers;
  }
  return placement;
}

}  // namespace ddprun::rendezvous
