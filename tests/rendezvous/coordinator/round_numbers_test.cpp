// Tests the displayed round numbers. The nodes' disks may contain any earlier rounds.
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
  placed.by_rank.push_back(nullptr);  // adds a rank that no node has
  return first_number_of(placed, Config{.id = {1, round}, .born = 1, .nodes = 3, .rank = 0}, before);
}

TEST(RoundNumbers, ContinueAfterTheHighestOnAnyNode) {
  EXPECT_EQ(first_number({0, 0}, 0, 0), 0);
  EXPECT_EQ(first_number({3, 0}, 0, 0), 3);
  EXPECT_EQ(first_number({3, 7}, 0, 0), 7);
}

TEST(RoundNumbers, LateNodeWithSharedFoldersChangesNothing) {
  // The late node reports 5, because the shared folder already contains rounds 3 and 4, which are rounds 0 and 1 of this job.
  EXPECT_EQ(first_number({3, 3, 5}, 2, 3), 3);
}

TEST(RoundNumbers, LateNodeWithMoreRoundsRaisesTheNumber) {
  EXPECT_EQ(first_number({0, 0, 9}, 2, 0), 7);
  EXPECT_EQ(first_number({0, 0}, 3, 7), 7) << "and they stay raised without it";
}

TEST(RoundNumbers, ImpossibleNumberIsIgnored) {
  EXPECT_EQ(first_number({0, 2'000'000'000, -5}, 0, 4), 4);
}

}  // namespace
}  // namespace ddprun::rendezvous
