// A connected node that never reports the end of its workers: the others continue without it.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

class AStuckNode : public RunningRound {
 protected:
  AStuckNode() : first_(round()) {
    says(kOther, failure(true));
    says(kSelfLink, Ready{.round = first_, .master_port = 1});
  }
  RoundId first_;
};

TEST_F(AStuckNode, IsNamedGetsNoMoreGrantsAndIsLost) {
  wait(seconds(9), {kSelfLink, kOther});
  EXPECT_EQ(said_.find("waiting for the workers"), std::string::npos);
  wait(seconds(2), {kSelfLink, kOther});
  EXPECT_NE(said_.find("waiting for the workers of host2 to end"), std::string::npos) << said_;
  wait(seconds(78), {kSelfLink, kOther});
  EXPECT_GT(grants_.at(kOther), 0);
  wait(seconds(3), {kSelfLink, kOther});
  EXPECT_EQ(grants_.at(kOther), 0);
  EXPECT_EQ(round(), first_) << "what was granted before is not over yet";
  wait(seconds(4), {kSelfLink, kOther});
  EXPECT_TRUE(closed_.contains(kOther));
  EXPECT_GT(round(), first_);
  EXPECT_EQ(released_.at(kSelfLink).nodes, 1);
}

TEST_F(AStuckNode, IsNamedOnceOnEveryConsole) {
  join(kThird, 3);
  wait(seconds(60), {kSelfLink, kOther, kThird});
  ASSERT_EQ(told_who_is_awaited_[kThird].size(), 1u);
  EXPECT_TRUE(told_who_is_awaited_[kThird].front().starts_with("waiting for the workers of host2 to end"));
  EXPECT_EQ(told_who_is_awaited_[kOther].size(), 1u) << "and its own";
  EXPECT_FALSE(told_who_is_awaited_.contains(kSelfLink)) << "the coordinator says it there";
}

TEST_F(AStuckNode, ComesBackAndKeepsNobodyWaiting) {
  wait(seconds(97), {kSelfLink, kOther});
  const RoundId second = round();
  ASSERT_GT(second, first_);
  join(kThird, 2, Workers::kStopping, first_);
  wait(seconds(5), {kSelfLink, kThird});
  EXPECT_EQ(grants_.at(kThird), 0);
  EXPECT_EQ(round(), second);
  over_.clear();
  says(kThird, Ready{.round = first_, .master_port = 1});  // it finally ends
  wait(seconds(3), {kSelfLink, kThird});
  EXPECT_TRUE(over_.contains(kSelfLink)) << "it is taken in again";
}

TEST_F(RunningRound, ACoordinatorThatIsStuckItselfLetsAnotherNodeLead) {
  const RoundId first = round();
  says(kOther, failure(true));
  says(kOther, Ready{.round = first, .master_port = 1});
  wait(seconds(89), {kSelfLink, kOther});
  EXPECT_FALSE(stepped_down_.has_value());
  wait(seconds(3), {kSelfLink, kOther});
  ASSERT_TRUE(stepped_down_.has_value());
  EXPECT_TRUE(stepped_down_->unfit);
}

// The coordinator's own workers were stuck while there was no other node to lead, so it stayed. Otherwise all later nodes would
// wait for its workers.
TEST_F(RunningRound, ACoordinatorThatIsStuckAndAloneLetsAnotherNodeLeadOnceOneIsThere) {
  says(kOther, failure(true));
  on(coordinator_event::Closed{kOther});
  wait(seconds(95), {kSelfLink});
  EXPECT_FALSE(stepped_down_.has_value());
  join(kThird, 2);
  wait(seconds(2), {kSelfLink, kThird});
  ASSERT_TRUE(stepped_down_.has_value());
  EXPECT_TRUE(stepped_down_->unfit);
}

}  // namespace
}  // namespace ddprun::rendezvous
