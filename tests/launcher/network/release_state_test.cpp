// Tests which ranks this node's workers have while the next round is still waiting for a name lookup.
#include "launcher/network/release_state.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(ReleaseState, HeldWorkersKeepTheirRanksUntilTheNextRound) {
  ReleaseState round;
  round.announce({.rank_offset = 4, .world_size = 8});
  ASSERT_TRUE(round.begin_next());
  round.announce({.rank_offset = 2, .world_size = 6});
  EXPECT_EQ(round.current().rank_offset, 4) << "their events and store replies arrive while the resolver is queried";
  EXPECT_EQ(round.newest().rank_offset, 2) << "the name of its master is queried";
  EXPECT_TRUE(round.begin_next());
  EXPECT_EQ(round.current().rank_offset, 2);
  EXPECT_EQ(round.newest().rank_offset, 2);
  EXPECT_FALSE(round.begin_next()) << "the resolver and its time limit may both report";
  EXPECT_EQ(round.current().world_size, 6);
}

}  // namespace
}  // namespace ddprun
