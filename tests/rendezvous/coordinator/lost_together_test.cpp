// Tests nodes that are lost at the same time. The coordinator must not count any of them in its next decision.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr LinkId kFourth = 4;
constexpr LinkId kFifth = 5;

class FiveNodes : public RunningRound {
 protected:
  FiveNodes() : RunningRound(1, Arbiter::kNone, 5) {
    for (const LinkId link : {kThird, kFourth, kFifth}) join(link, static_cast<std::uint8_t>(link));
    wait(seconds(3), {kSelfLink, kOther, kThird, kFourth, kFifth});
    for (const LinkId link : {kSelfLink, kOther}) send_from(link, Ready{.round = round(), .master_port = 1});
    for (int turn = 0; turn < 2; ++turn) {
      for (const LinkId link : {kSelfLink, kOther, kThird, kFourth, kFifth}) ping(link);
    }
    over_.clear();
  }
};

TEST_F(FiveNodes, EquallySilentNodesAreLostTogether) {
  ASSERT_EQ(released_.at(kSelfLink).nodes, 5);
  wait(seconds(8), {kSelfLink, kOther, kThird});
  EXPECT_TRUE(closed_.contains(kFourth) && closed_.contains(kFifth));
  ASSERT_TRUE(over_.contains(kOther));
  EXPECT_EQ(over_.at(kOther).why, "host4 sent nothing for 5000 ms");
  EXPECT_FALSE(over_.contains(kFourth));
  EXPECT_FALSE(over_.contains(kFifth));
  for (const LinkId link : {kSelfLink, kOther, kThird}) send_from(link, Ready{.round = round(), .master_port = 1});
  EXPECT_EQ(released_.at(kSelfLink).nodes, 3);
}

}  // namespace
}  // namespace ddprun::rendezvous
