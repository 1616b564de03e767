// Whether the coordinator allows workers to wait for the next round with their state, and what that costs. Also the treatment
// of a node that has finished.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

TEST_F(RunningRound, WorkersWaitWhenALostOnesNodeSaysThatTheOthersAreSound) {
  ASSERT_EQ(released_.at(kOther).nodes, 2);
  says(kOther, failure(true));
  EXPECT_TRUE(over_.at(kSelfLink).hold);
  EXPECT_TRUE(over_.at(kOther).hold);
}

TEST_F(RunningRound, NobodyWaitsWhenItSaysNothingOfTheKind) {
  says(kOther, failure(false));
  EXPECT_FALSE(over_.at(kSelfLink).hold);
  EXPECT_FALSE(over_.at(kOther).hold);
}

TEST_F(RunningRound, AFailureCostsARestartWhoeverWaits) {
  const RoundId first = round();
  says(kOther, failure(true));
  for (const LinkId link : {kSelfLink, kOther}) says(link, Ready{.round = first, .master_port = 1});
  EXPECT_GT(round(), first);
  EXPECT_EQ(released_.at(kOther).budget.restart_count, 1);
  EXPECT_EQ(released_.at(kOther).budget.history.used, 1);
}

TEST_F(RunningRound, WorkersWaitWhenANodeIsLostAndThatCostsNothing) {
  const RoundId first = round();
  on(coordinator_event::Closed{kOther});
  EXPECT_TRUE(over_.at(kSelfLink).hold);
  says(kSelfLink, Ready{.round = first, .master_port = 1});
  EXPECT_GT(round(), first);
  EXPECT_EQ(released_.at(kSelfLink).budget.restart_count, 0);
}

TEST_F(RunningRound, WorkersWaitWhenANodeComes) {
  join(kThird, 3);
  time_ += milliseconds(2500);
  tick();
  ASSERT_TRUE(over_.contains(kSelfLink));
  EXPECT_TRUE(over_.at(kSelfLink).hold);
  EXPECT_TRUE(over_.at(kOther).hold);
}

TEST_F(RunningRound, WorkersWaitWhenANodeLeaves) {
  says(kOther, StopAsk{15});
  time_ += milliseconds(250);
  tick();
  ASSERT_TRUE(over_.contains(kSelfLink));
  EXPECT_TRUE(over_.at(kSelfLink).hold);
}

// A node whose workers could not form a group again reports that by having no workers. Then the state of the other nodes must
// not be used either.
TEST_F(RunningRound, NobodyWaitsWhenANodeCouldNotGoOnWithWhatItHeld) {
  says(kOther, Ready{.round = round(), .master_port = 1});
  EXPECT_FALSE(over_.at(kSelfLink).hold);
  EXPECT_FALSE(over_.at(kOther).hold);
}

// A stop signal came while a replacement on the other node was loading.
TEST_F(RunningRound, AtAStopANodeWithHeldStateSavesIt) {
  for (const LinkId link : {kOther, kSelfLink}) says(link, StopAsk{15});
  ASSERT_TRUE(saves_.contains(kSelfLink));
  EXPECT_FALSE(saves_.at(kSelfLink).held);
  saves_.clear();
  says(kOther, StopReady{.round = round(), .started = 7});
  says(kSelfLink, Stopped{.round = round(), .holds = true});
  ASSERT_TRUE(saves_.contains(kSelfLink)) << "nothing is awaited from the other node";
  EXPECT_TRUE(saves_.at(kSelfLink).held);
  EXPECT_FALSE(saves_.contains(kOther));
  says(kOther, Stopped{.round = round()});
  EXPECT_FALSE(job_over_.has_value());
  says(kSelfLink, StopReady{.round = round(), .started = 40});
  says(kSelfLink, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

// ---- no next round ----

class WithoutAReplacement : public RunningRound {
 protected:
  // The failure of the worker that replaced a lost one. The other node's workers wait.
  void ends(Cause cause, bool others_stay) {
    FailureReport last = failure(others_stay);
    last.failed.cause = cause;
    last.message = kLastFailure;
    says(kOther, last);
    for (const LinkId link : {kSelfLink, kOther}) says(link, Ready{.round = round(), .master_port = 1});
  }
};

TEST_F(WithoutAReplacement, WhoHoldsTheStateSavesItAndThenTheJobEnds) {
  ends(Cause::kLateUsage, true);
  ASSERT_TRUE(saves_.contains(kSelfLink));
  EXPECT_TRUE(saves_.at(kSelfLink).held);
  EXPECT_FALSE(saves_.contains(kOther)) << "two would write one checkpoint";
  EXPECT_FALSE(job_over_.has_value());
  says(kSelfLink, StopReady{.round = round(), .started = 40});
  says(kSelfLink, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
  EXPECT_EQ(job_over_->why, "0 of 0 restarts are left; what the others held is saved: run it again to go on");
}

// The next start would get the same data, so the exit code must not request a restart.
TEST_F(WithoutAReplacement, BadDataEndsTheJobWithItsCodeOnceTheStateIsSaved) {
  ends(Cause::kUsage, true);
  says(kSelfLink, StopReady{.round = round(), .started = 40});
  says(kSelfLink, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 2);
  EXPECT_EQ(job_over_->why, "0 of 0 restarts are left; what the others held is saved");
}

TEST_F(WithoutAReplacement, OneNodeAfterTheOtherIsAskedUntilOneHasSaved) {
  ends(Cause::kLateUsage, true);
  says(kSelfLink, Stopped{.round = round()});
  ASSERT_TRUE(saves_.contains(kOther));
  EXPECT_TRUE(saves_.at(kOther).held);
  says(kOther, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

TEST_F(WithoutAReplacement, ItEndsAsTheFailureSaysWhenNobodyCould) {
  ends(Cause::kLateUsage, true);
  says(kSelfLink, Stopped{.round = round()});
  on(coordinator_event::Closed{kOther});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 2);
}

TEST_F(WithoutAReplacement, NobodySavesWhatMayNotBeSound) {
  ends(Cause::kCorruptState, true);
  EXPECT_TRUE(saves_.empty());
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 2);
}

TEST_F(WithoutAReplacement, NobodyIsAskedWhereNobodyWaits) {
  ends(Cause::kLateUsage, false);
  EXPECT_TRUE(saves_.empty());
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 2);
}

// ---- a node that has finished ----

TEST_F(RunningRound, AFinishedNodeThatComesBackEndsNobodysRound) {
  says(kOther, Done{round()});
  on(coordinator_event::Closed{kOther});
  EXPECT_TRUE(over_.empty());
  join(kThird, 2, Workers::kDone);
  says(kThird, Done{round()});
  says(kThird, Ready{.round = round(), .master_port = 1});  // an agent that sends Ready although it has finished
  EXPECT_TRUE(over_.empty());
  says(kSelfLink, Done{round()});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 0);
}

// The connection broke after its workers had ended, and the node noticed that first.
TEST_F(RunningRound, ANodeWhoseLastWordWasLostIsDoneWhenItsHelloSaysSo) {
  join(kThird, 2, Workers::kDone);
  EXPECT_TRUE(over_.empty());
  says(kSelfLink, Done{round()});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 0);
}

TEST_F(RunningRound, AFinishedNodeThatComesAndGoesIsCountedOnce) {
  says(kOther, Done{round()});
  for (int turn = 0; turn < 3; ++turn) {
    on(coordinator_event::Closed{turn == 0 ? kOther : kThird});
    join(kThird, 2, Workers::kDone);
  }
  says(kThird, Done{round()});
  EXPECT_FALSE(job_over_.has_value());
  EXPECT_TRUE(over_.empty());
  on(coordinator_event::Closed{kSelfLink});  // the loss of a node that has not finished still ends the round
  EXPECT_TRUE(over_.contains(kThird));
}

// ---- how the end becomes known ----

TEST_F(RunningRound, IsOverWhenAllWhoAreHereKnowHowItEnds) {
  silent_ = {kOther};
  says(kSelfLink, Done{round()});
  says(kOther, Done{round()});
  ASSERT_TRUE(endings_.contains(kOther));
  EXPECT_EQ(endings_.at(kOther).exit_code, 0);
  EXPECT_FALSE(job_over_.has_value()) << "it may be lost now, and the other one would run the job again";
  says(kOther, Concluded{endings_.at(kOther).origin});
  EXPECT_TRUE(job_over_.has_value());
}

TEST_F(RunningRound, WaitsForNobodyWhoIsLostWhenItEnds) {
  silent_ = {kOther};
  says(kSelfLink, Done{round()});
  says(kOther, Done{round()});
  on(coordinator_event::Closed{kOther});
  EXPECT_TRUE(job_over_.has_value()) << "with the first node, half of the two is a majority";
}

// Its predecessor was lost after it had informed this node.
TEST_F(RunningRound, EndsAsANodeKnowsThatItsPredecessorWouldHave) {
  on(coordinator_event::Closed{kOther});
  on(coordinator_event::Opened{kThird});
  Hello hello;
  hello.node = {2};
  hello.incarnation = 1;
  hello.attempt = ++hellos_;
  hello.workers = Workers::kDone;
  hello.workers_round = round();
  hello.ending = {.origin = round(), .exit_code = 7, .why = "the restarts are spent"};
  hello.listens = {"10.0.0.2", 29400};
  says(kThird, hello);
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 7);
  EXPECT_EQ(job_over_->why, "the restarts are spent");
}

}  // namespace
}  // namespace ddprun::rendezvous
