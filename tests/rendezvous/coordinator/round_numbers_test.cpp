// The numbers of rounds for users, for any content of the nodes' disks.
#include "rendezvous/coordinator/release.hpp"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

std::int32_t first_number(std::vector<std::int32_t> next_numbers, std::int64_t round, std::int32_t before) {
  std::vector<Peer> peers(next_numbers.size());
  PlacedNodes placed;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    peers[i].hello.next_number = next_numbers[i];
    placed.by_rank.push_back(&peers[i]);
  }
  placed.by_rank.push_back(nullptr);  // a rank without a node
  return first_number_of(placed, Config{.id = {1, round}, .born = 1, .nodes = 3, .rank = 0}, before);
}

TEST(RoundNumbers, GoOnAfterTheHighestThatAnyNodeHasKept) {
  EXPECT_EQ(first_number({0, 0}, 0, 0), 0);
  EXPECT_EQ(first_number({3, 0}, 0, 0), 3);
  EXPECT_EQ(first_number({3, 7}, 0, 0), 7);
}

TEST(RoundNumbers, ALateNodeThatSharesTheFoldersCountsAsTheOthers) {
  // Rounds 3 and 4 of those folders were rounds 0 and 1 of this job.
  EXPECT_EQ(first_number({3, 3, 5}, 2, 3), 3);
}

TEST(RoundNumbers, ALateNodeWithMoreRoundsOfItsOwnRaisesThem) {
  EXPECT_EQ(first_number({0, 0, 9}, 2, 0), 7);
  EXPECT_EQ(first_number({0, 0}, 3, 7), 7) << "and they stay raised without it";
}

TEST(RoundNumbers, NonsenseOfANodeIsNotFollowed) {
  EXPECT_EQ(first_number({0, 2'000'000'000, -5}, 0, 4), 4);
}

}  // namespace
}  // namespace ddprun::rendezvous
