// Tests which successors a release contains. One of the successors leads if the coordinator is lost.
#include "rendezvous/coordinator/release.hpp"

#include <gtest/gtest.h>

#include <deque>

namespace ddprun::rendezvous {
namespace {

// Returns the ranks of the successors in a round of `nodes` nodes. Node 0 is the coordinator. The nodes in `without` do not
// accept connections.
std::vector<std::int32_t> successors_of(std::int32_t nodes, const std::vector<std::int32_t>& without = {}) {
  std::deque<Peer> peers;
  PlacedNodes placed;
  for (std::int32_t rank = 0; rank < nodes; ++rank) {
    Peer& peer = peers.emplace_back();
    peer.rank = rank;
    peer.hello.node = {static_cast<std::uint8_t>(rank / 256), static_cast<std::uint8_t>(rank % 256)};
    const bool listens = std::find(without.begin(), without.end(), rank) == without.end();
    peer.hello.listens = {"10.0.0.1", static_cast<std::uint16_t>(listens ? 29400 : 0)};
    placed.by_rank.push_back(&peer);
  }
  std::vector<std::int32_t> ranks;
  for (const Successor& named : common_release(placed, {}, {}, CoordinatorSettings{}).successors)
    ranks.push_back(named.group_rank);
  return ranks;
}

TEST(Successors, AreAllNodesOfASmallRound) {
  EXPECT_EQ(successors_of(1), (std::vector<std::int32_t>{}));
  EXPECT_EQ(successors_of(3), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(successors_of(5), (std::vector<std::int32_t>{1, 2, 3, 4}));
}

// Successors should be in different racks. The nodes of a rack usually have adjacent ranks.
TEST(Successors, AreSpreadOverALargeRound) {
  EXPECT_EQ(successors_of(9), (std::vector<std::int32_t>{2, 4, 6, 8}));
  EXPECT_EQ(successors_of(1001), (std::vector<std::int32_t>{126, 376, 626, 876}));
  EXPECT_EQ(successors_of(7, {1, 3}), (std::vector<std::int32_t>{2, 4, 5, 6}));
}

}  // namespace
}  // namespace ddprun::rendezvous
