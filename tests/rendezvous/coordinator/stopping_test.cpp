// Signals: which of them stop the job after a save, which let one node leave, and the message if nothing could be saved.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

TEST_F(RunningRound, SignalsToAllNodesSaveWhoeverIsHeardFirst) {
  says(kOther, StopAsk{15});
  EXPECT_TRUE(over_.empty());
  EXPECT_TRUE(saves_.empty());
  EXPECT_LE(*coordinator_.next_deadline(), time_ + milliseconds(250));
  time_ += milliseconds(20);
  says(kSelfLink, StopAsk{15});
  EXPECT_TRUE(over_.empty());
  ASSERT_TRUE(saves_.contains(kSelfLink) && saves_.contains(kOther));
  for (const LinkId link : {kSelfLink, kOther}) says(link, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

// The end waits for one node, whose old connection is lost when it reconnects. The end of the job must not make the coordinator
// forget the reconnect.
TEST_F(RunningRound, ANodeThatComesBackWhenTheEndWaitsForNobodyElseHearsOfIt) {
  silent_.insert(kOther);
  for (const LinkId link : {kSelfLink, kOther}) says(link, StopAsk{15});
  for (const LinkId link : {kSelfLink, kOther}) says(link, Stopped{.round = round(), .saved = true});
  EXPECT_TRUE(endings_.contains(kOther));
  EXPECT_FALSE(job_over_.has_value());
  join(kThird, 2);
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_TRUE(told_of_end_.contains(kThird));
  EXPECT_EQ(job_over_->exit_code, 85);
  EXPECT_TRUE(closed_.contains(kThird));
}

// The round ended to admit a node, and then each of its own nodes left before it could save.
TEST_F(RunningRound, NobodyIsTakenInWhileSignalsAreOnTheirWay) {
  join(kThird, 3);
  time_ += milliseconds(1900);
  for (const LinkId link : {kSelfLink, kOther, kThird}) ping(link);
  EXPECT_FALSE(coordinator_.is_stopping());
  says(kSelfLink, StopAsk{15});
  EXPECT_TRUE(coordinator_.is_stopping());
  time_ += milliseconds(150);
  tick();
  EXPECT_TRUE(over_.empty());
  says(kOther, StopAsk{15});
  EXPECT_TRUE(over_.empty());
  EXPECT_TRUE(saves_.contains(kSelfLink) && saves_.contains(kOther));
  EXPECT_TRUE(coordinator_.is_stopping());
}

TEST_F(RunningRound, ANodeThatIsAskedAloneLeavesAfterAWhile) {
  says(kOther, StopAsk{15});
  time_ += milliseconds(249);
  tick();
  EXPECT_TRUE(over_.empty());
  time_ += milliseconds(1);
  tick();
  ASSERT_TRUE(over_.contains(kOther));
  EXPECT_TRUE(over_.at(kSelfLink).hold);
  EXPECT_NE(over_.at(kSelfLink).why.find("is leaving"), std::string::npos);
}

TEST_F(RunningRound, ANodeWhoseWorkersCannotBeHeldLeavesWhenAllHaveSaved) {
  says(kOther, StopAsk{15, true});
  time_ += milliseconds(250);
  tick();
  EXPECT_TRUE(over_.empty());
  ASSERT_TRUE(saves_.contains(kSelfLink) && saves_.contains(kOther));
  EXPECT_TRUE(saves_.at(kSelfLink).goes_on);
  for (const LinkId link : {kSelfLink, kOther}) says(link, Stopped{.round = round(), .saved = true});
  EXPECT_FALSE(job_over_.has_value());
  ASSERT_TRUE(over_.contains(kSelfLink) && over_.contains(kOther));
  EXPECT_NE(over_.at(kSelfLink).why.find("is leaving"), std::string::npos);
  const RoundId first = round();
  says(kOther, Leave{"a signal"});
  says(kSelfLink, Ready{.round = first, .master_port = 1});
  EXPECT_GT(round(), first);
}

TEST_F(RunningRound, ASignalToTheCoordinatorWhileOneLeavesEndsTheJobWithWhatIsSaved) {
  says(kOther, StopAsk{15, true});
  time_ += milliseconds(250);
  tick();
  says(kSelfLink, StopAsk{15, true});
  for (const LinkId link : {kSelfLink, kOther}) says(link, Stopped{.round = round(), .saved = true});
  EXPECT_TRUE(over_.empty());
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

TEST_F(RunningRound, ANodeThatIsDoneBeforeItLeavesEndsNothing) {
  says(kOther, StopAsk{15});
  says(kOther, Done{round()});
  says(kOther, Leave{"a signal"});
  time_ += milliseconds(300);
  tick();
  EXPECT_TRUE(over_.empty());
  says(kSelfLink, Done{round()});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 0);
}

// State that workers hold while a round ends is saved by a round that is started only for that.
TEST_F(RunningRound, ASignalWhileWorkersWaitSavesInTheNextRound) {
  const RoundId first = round();
  says(kOther, Leave{"a signal"});
  ASSERT_TRUE(over_.at(kSelfLink).hold);
  says(kSelfLink, StopAsk{15});
  EXPECT_FALSE(job_over_.has_value());
  says(kSelfLink, Ready{.round = first, .master_port = 1});
  EXPECT_GT(round(), first);
  ASSERT_TRUE(saves_.contains(kSelfLink));
  EXPECT_EQ(saves_.at(kSelfLink).round, round());
  says(kSelfLink, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

// Three nodes train.
class ThreeTrain : public RunningRound {
 protected:
  explicit ThreeTrain(std::int32_t min_nodes = 1) : RunningRound(min_nodes) {
    join(kThird, 3);
    time_ += milliseconds(2500);
    tick();
    const RoundId first = round();
    for (const LinkId link : {kSelfLink, kOther}) says(link, Ready{.round = first, .master_port = 1});
    for (const LinkId link : {kSelfLink, kOther, kThird}) ping(link);
    over_.clear();
  }
};

// One of them is lost. Another node has got a signal before the coordinator learns of a signal to its own node.
class RoundThatEnds : public ThreeTrain {
 protected:
  RoundThatEnds() {
    last_ = round();
    on(coordinator_event::Closed{kThird});
  }
  void both_are_ready() {
    for (const LinkId link : {kSelfLink, kOther}) says(link, Ready{.round = last_, .master_port = 1});
  }
  RoundId last_{};
};

TEST_F(RoundThatEnds, SignalsToAllNodesSaveAllTheSame) {
  ASSERT_TRUE(over_.at(kOther).hold);
  says(kOther, StopAsk{15});
  both_are_ready();
  EXPECT_EQ(round(), last_);
  EXPECT_TRUE(may_leave_.empty());
  time_ += milliseconds(20);
  says(kSelfLink, StopAsk{15});
  EXPECT_GT(round(), last_);
  EXPECT_EQ(released_.at(kOther).nodes, 2);
  ASSERT_TRUE(saves_.contains(kSelfLink) && saves_.contains(kOther));
  for (const LinkId link : {kSelfLink, kOther}) says(link, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

TEST_F(RoundThatEnds, WhoIsSignalledAloneLeavesAndTheOthersGoOn) {
  says(kOther, StopAsk{15});
  both_are_ready();
  time_ += milliseconds(250);
  tick();
  EXPECT_EQ(may_leave_, std::set<LinkId>{kOther});
  EXPECT_EQ(round(), last_);  // only after it has left
  says(kOther, Leave{"a signal"});
  EXPECT_GT(round(), last_);
  EXPECT_EQ(released_.at(kSelfLink).nodes, 1);
  EXPECT_FALSE(saves_.contains(kSelfLink));
}

TEST_F(RunningRound, NobodyWaitsForASaveWhereNothingIsHeld) {
  says(kSelfLink, failure(false));
  says(kOther, StopAsk{15});
  EXPECT_EQ(may_leave_, std::set<LinkId>{kOther});
}

TEST_F(RunningRound, ASignalWhenNothingCanBeSavedSaysWhy) {
  says(kOther, failure(false));
  says(kSelfLink, StopAsk{15});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 143);
  EXPECT_EQ(job_over_->why, "stopped by signal 15 without saving: a round had failed");
}

// Three nodes of which two are needed: after two signals the third cannot continue alone.
class TwoOfThree : public ThreeTrain {
 protected:
  TwoOfThree() : ThreeTrain(2) {}
};

TEST_F(TwoOfThree, SignalsToMoreThanMayLeaveSave) {
  ASSERT_EQ(released_.at(kThird).nodes, 3);
  says(kOther, StopAsk{15});
  EXPECT_TRUE(saves_.empty());
  says(kThird, StopAsk{15});
  EXPECT_TRUE(over_.empty());
  EXPECT_EQ(saves_.size(), 3u);
}

// It was asked to leave while the round ran, and the round ended for another reason before that was decided.
TEST_F(TwoOfThree, ASignalThatCameBeforeTheEndOfItsRoundIsNotForgotten) {
  const RoundId last = round();
  says(kOther, StopAsk{15});
  on(coordinator_event::Closed{kThird});
  ASSERT_TRUE(over_.at(kOther).hold);
  EXPECT_TRUE(may_leave_.empty());
  for (const LinkId link : {kSelfLink, kOther}) says(link, Ready{.round = last, .master_port = 1});
  // Without it too few nodes would remain, so its signal ends the job.
  ASSERT_TRUE(saves_.contains(kSelfLink) && saves_.contains(kOther));
  for (const LinkId link : {kSelfLink, kOther}) says(link, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

TEST_F(TwoOfThree, TheCoordinatorsNodeLeavesAndHandsOverWhenNobodysWorkersRunAnyMore) {
  const RoundId last = round();
  says(kSelfLink, StopAsk{15});
  EXPECT_TRUE(saves_.empty());
  time_ += seconds(1);
  for (const LinkId link : {kSelfLink, kOther, kThird}) ping(link);
  tick();
  ASSERT_TRUE(over_.contains(kOther));
  says(kSelfLink, Leave{"a signal"});
  says(kOther, Ready{.round = last, .master_port = 1});
  EXPECT_TRUE(handed_over_.empty());
  says(kThird, Ready{.round = last, .master_port = 1});
  ASSERT_TRUE(handed_over_.contains(kOther) && handed_over_.contains(kThird));
  EXPECT_EQ(handed_over_.at(kThird).to.node, NodeId{2});
  EXPECT_EQ(handed_over_.at(kThird).state.current.rank, 0);
  EXPECT_TRUE(stepped_down_.has_value());
  EXPECT_FALSE(job_over_.has_value());
}

// Its workers may run until their grant ends.
TEST_F(TwoOfThree, AHandoverWaitsALeaseForWhoIsLostWithItsWorkers) {
  const RoundId last = round();
  says(kSelfLink, StopAsk{15});
  time_ += seconds(1);
  for (const LinkId link : {kSelfLink, kOther, kThird}) ping(link);
  tick();
  says(kSelfLink, Leave{"a signal"});
  says(kOther, Ready{.round = last, .master_port = 1});
  on(coordinator_event::Closed{kThird});
  EXPECT_TRUE(handed_over_.empty());
  wait(seconds(4), {kOther});
  EXPECT_TRUE(handed_over_.empty());
  wait(seconds(2), {kOther});
  EXPECT_TRUE(handed_over_.contains(kOther));
}

TEST_F(TwoOfThree, ASignalWithTooFewNodesSavesTheHeldStateOrReportsWhyNot) {
  const RoundId first = round();
  says(kOther, Leave{"a signal"});
  says(kThird, Leave{"a signal"});
  says(kSelfLink, StopAsk{15});
  says(kSelfLink, Ready{.round = first, .master_port = 1});
  ASSERT_TRUE(saves_.contains(kSelfLink));
  EXPECT_TRUE(saves_.at(kSelfLink).held);
  EXPECT_FALSE(job_over_.has_value());
  says(kSelfLink, Stopped{.round = first});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 143);
  EXPECT_NE(job_over_->why.find("fewer nodes are left than --nnodes requires"), std::string::npos);
}

}  // namespace
}  // namespace ddprun::rendezvous
