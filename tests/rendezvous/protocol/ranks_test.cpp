// Tests that worker ranks are numbered in the same way as by torchrun.
#include "rendezvous/protocol/ranks.hpp"

#include <gtest/gtest.h>

#include <set>

namespace ddprun {
namespace {

TEST(Ranks, OneNode) {
  const NodeShare node{.role = "default", .local_world_size = 3};
  const auto ranks = assign_ranks(std::span(&node, 1));
  ASSERT_EQ(ranks.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const RankAssignment expected{.rank = i,
                                  .world_size = 3,
                                  .local_rank = i,
                                  .local_world_size = 3,
                                  .group_rank = 0,
                                  .group_world_size = 1,
                                  .role_rank = i,
                                  .role_world_size = 3,
                                  .role = "default"};
    EXPECT_EQ(ranks[static_cast<std::size_t>(i)], expected);
  }
}

TEST(Ranks, NodesOfDifferentSizeAreContiguousByGroupRank) {
  const std::vector<NodeShare> nodes{{"default", 2}, {"default", 1}, {"default", 4}};
  const auto ranks = assign_ranks(nodes);
  ASSERT_EQ(ranks.size(), 7u);
  const std::vector<int> groups{0, 0, 1, 2, 2, 2, 2};
  const std::vector<int> locals{0, 1, 0, 0, 1, 2, 3};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_EQ(ranks[i].rank, static_cast<int>(i));
    EXPECT_EQ(ranks[i].group_rank, groups[i]);
    EXPECT_EQ(ranks[i].local_rank, locals[i]);
    EXPECT_EQ(ranks[i].world_size, 7);
    EXPECT_EQ(ranks[i].group_world_size, 3);
  }
}

TEST(Ranks, RolesAreCountedSeparately) {
  const std::vector<NodeShare> nodes{{"trainer", 2}, {"reader", 1}, {"trainer", 2}};
  const auto ranks = assign_ranks(nodes);
  const std::vector<int> role_ranks{0, 1, 0, 2, 3};
  const std::vector<int> role_sizes{4, 4, 1, 4, 4};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_EQ(ranks[i].role_rank, role_ranks[i]);
    EXPECT_EQ(ranks[i].role_world_size, role_sizes[i]);
  }
}

TEST(Ranks, ANodeWithoutWorkersIsRefused) {
  const NodeShare node{.role = "default", .local_world_size = 0};
  EXPECT_THROW(assign_ranks(std::span(&node, 1)), std::invalid_argument);
}

}  // namespace
}  // namespace ddprun
