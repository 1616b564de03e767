// Tests a connected node whose workers never end. The other nodes must continue without it.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

class StuckNode : public RunningRound {
 protected:
  StuckNode() : first_(round()) {
    send_from(kOther, failure(true));
    send_from(kSelfLink, Ready{.round = first_, .master_port = 1});
  }
  RoundId first_;
};

TEST_F(StuckNode, IsLoggedLosesItsLeaseAndIsLost) {
  wait(seconds(9), {kSelfLink, kOther});
  EXPECT_EQ(notices_.find("waiting for the workers"), std::string::npos);
  wait(seconds(2), {kSelfLink, kOther});
  EXPECT_NE(notices_.find("waiting for the workers of host2 to end"), std::string::npos) << notices_;
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

TEST_F(StuckNode, IsReportedOnceOnEveryConsole) {
  join(kThird, 3);
  wait(seconds(60), {kSelfLink, kOther, kThird});
  ASSERT_EQ(waiting_texts_[kThird].size(), 1u);
  EXPECT_TRUE(waiting_texts_[kThird].front().starts_with("waiting for the workers of host2 to end"));
  EXPECT_EQ(waiting_texts_[kOther].size(), 1u) << "and its own";
  EXPECT_FALSE(waiting_texts_.contains(kSelfLink)) << "the coordinator logs it there";
}

TEST_F(StuckNode, ReturnsWithoutBlockingOthers) {
  wait(seconds(97), {kSelfLink, kOther});
  const RoundId second = round();
  ASSERT_GT(second, first_);
  join(kThird, 2, Workers::kStopping, first_);
  wait(seconds(5), {kSelfLink, kThird});
  EXPECT_EQ(grants_.at(kThird), 0);
  EXPECT_EQ(round(), second);
  over_.clear();
  send_from(kThird, Ready{.round = first_, .master_port = 1});  // the node reports only now that its workers have ended
  wait(seconds(3), {kSelfLink, kThird});
  EXPECT_TRUE(over_.contains(kSelfLink)) << "it is taken in again";
}

TEST_F(RunningRound, StuckCoordinatorStepsDown) {
  const RoundId first = round();
  send_from(kOther, failure(true));
  send_from(kOther, Ready{.round = first, .master_port = 1});
  wait(seconds(89), {kSelfLink, kOther});
  EXPECT_FALSE(stepped_down_.has_value());
  wait(seconds(3), {kSelfLink, kOther});
  ASSERT_TRUE(stepped_down_.has_value());
  EXPECT_TRUE(stepped_down_->unfit);
}

// The workers on the coordinator's node are stuck. The coordinator continues to lead while no other node can lead. When
// another node joins, the coordinator must step down. If it did not, all later nodes would wait for the stuck workers.
TEST_F(RunningRound, StuckCoordinatorStepsDownWhenANodeJoins) {
  send_from(kOther, failure(true));
  on(node_event::LinkClosed{kOther});
  wait(seconds(95), {kSelfLink});
  EXPECT_FALSE(stepped_down_.has_value());
  join(kThird, 2);
  wait(seconds(2), {kSelfLink, kThird});
  ASSERT_TRUE(stepped_down_.has_value());
  EXPECT_TRUE(stepped_down_->unfit);
}

}  // namespace
}  // namespace ddprun::rendezvous
