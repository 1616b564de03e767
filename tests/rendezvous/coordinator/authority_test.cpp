// The basis of a coordinator's authority, and which nodes count as connected while connections open and close.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

// A node that was released into a round has heard its coordinator at that time. That still counts after another round has
// followed. Earlier, without recent stamps, the start of the next round took away the authority over the previous one.
TEST_F(RunningRound, ARoundThatFollowsSoonTakesNothingFromItsAuthority) {
  const auto says_nothing_back = [&](LinkId link) {
    says(link, Ping{.stamp = stamp_of(time_), .echo = 0, .realtime_ns = 0, .installed = released_[link].id});
  };
  time_ += seconds(2);
  join(kThird, 3);
  time_ += milliseconds(2500);
  for (const LinkId link : {kSelfLink, kOther, kThird}) says_nothing_back(link);
  tick();
  RoundId last = round();
  for (const LinkId link : {kSelfLink, kOther}) says(link, Ready{.round = last, .master_port = 1});
  ASSERT_GT(round(), last);
  for (const LinkId link : {kSelfLink, kOther, kThird}) says_nothing_back(link);

  time_ += seconds(1);  // five and a half since the other node has sent back a stamp
  last = round();
  on(coordinator_event::Closed{kThird});
  for (const LinkId link : {kSelfLink, kOther}) says(link, Ready{.round = last, .master_port = 1});
  EXPECT_GT(round(), last);
  tick();
  EXPECT_FALSE(stepped_down_.has_value());
  time_ += seconds(4);  // five since it was released into the previous round
  tick();
  EXPECT_TRUE(stepped_down_.has_value());
}

// A Hello may be delayed, and its process gone. The next round would then have had a rank without a node.
TEST_F(RunningRound, WhoHasNotAnsweredItsWelcomeCountsAsNobody) {
  say_hello(kThird, 3);
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

// One of two nodes is gone, and the other ends its job in a round that only it knows. The lost node could still get the
// arbiter's vote, and run the job again.
class TwoAndAnArbiter : public RunningRound {
 protected:
  TwoAndAnArbiter() : RunningRound(1, Arbiter::kEtcd) {}
};

TEST_F(TwoAndAnArbiter, TheEndNeedsAMajorityOfTheRoundBeforeToo) {
  const RoundId first = round();
  on(coordinator_event::Closed{kOther});
  says(kSelfLink, Ready{.round = first, .master_port = 1});
  ASSERT_GT(round(), first);
  ping(kSelfLink);
  says(kSelfLink, Done{round()});
  EXPECT_TRUE(endings_.contains(kSelfLink));
  EXPECT_FALSE(job_over_.has_value());
  on(coordinator_event::ArbiterVotes{first});
  EXPECT_TRUE(job_over_.has_value());
}

}  // namespace
}  // namespace ddprun::rendezvous
