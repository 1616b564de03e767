// Tests how long a coordinator may lead (its lease), and which nodes count as connected while connections open and close.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

// A release is the message that starts a round. Each node that got it has received a message of its coordinator. So the
// release must count as contact with the node for the leader lease, even after the next round has started. Regression: the
// next round started immediately, and the coordinator lost its lease under the previous round.
TEST_F(RunningRound, ImmediateNextRoundKeepsTheAuthority) {
  const auto gets_no_reply = [&](LinkId link) {
    send_from(link, Ping{.stamp = stamp_of(time_), .echo = 0, .realtime_ns = 0, .installed = released_[link].id});
  };
  time_ += seconds(2);
  join(kThird, 3);
  time_ += milliseconds(2500);
  for (const LinkId link : {kSelfLink, kOther, kThird}) gets_no_reply(link);
  tick();
  RoundId last = round();
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, Ready{.round = last, .master_port = 1});
  ASSERT_GT(round(), last);
  for (const LinkId link : {kSelfLink, kOther, kThird}) gets_no_reply(link);

  time_ += seconds(1);  // 5.5 s after the last timestamp that the other node has returned
  last = round();
  on(node_event::LinkClosed{kThird});
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, Ready{.round = last, .master_port = 1});
  EXPECT_GT(round(), last);
  tick();
  EXPECT_FALSE(stepped_down_.has_value());
  time_ += seconds(4);  // 5 s after the release of the previous round to the other node
  tick();
  EXPECT_TRUE(stepped_down_.has_value());
}

// A Hello may arrive after its sender has ended. Regression: the next round then had a rank without a node.
TEST_F(RunningRound, NodeCountsOnlyAfterItsWelcomeIsAnswered) {
  send_hello(kThird, 3);
  time_ += seconds(3);
  ping(kSelfLink);
  ping(kOther);
  tick();
  EXPECT_TRUE(over_.empty());
  ping(kThird);
  time_ += seconds(2);
  tick();
  EXPECT_FALSE(over_.empty());
}

// One of two nodes is lost. The other node ends the job in a round that no other node has recorded. This end of the job must
// not take effect, because the lost node could still get the arbiter's vote and run the job again.
class TwoNodesWithArbiter : public RunningRound {
 protected:
  TwoNodesWithArbiter() : RunningRound(1, Arbiter::kEtcd) {}
};

TEST_F(TwoNodesWithArbiter, EndNeedsAMajorityOfThePreviousRoundToo) {
  const RoundId first = round();
  on(node_event::LinkClosed{kOther});
  send_from(kSelfLink, Ready{.round = first, .master_port = 1});
  ASSERT_GT(round(), first);
  ping(kSelfLink);
  send_from(kSelfLink, Done{round()});
  EXPECT_TRUE(endings_.contains(kSelfLink));
  EXPECT_FALSE(job_over_.has_value());
  on(coordinator_event::ArbiterVotes{first});
  EXPECT_TRUE(job_over_.has_value());
}

}  // namespace
}  // namespace ddprun::rendezvous
