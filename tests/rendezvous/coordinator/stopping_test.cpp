// Tests stop signals. Some signals stop the whole job after a save, and others let only one node leave. If no state was saved,
// a message must contain the reason.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

TEST_F(RunningRound, SignalsToAllNodesSaveTheJob) {
  send_from(kOther, StopRequest{15});
  EXPECT_TRUE(over_.empty());
  EXPECT_TRUE(saves_.empty());
  EXPECT_LE(*coordinator_.next_deadline(), time_ + milliseconds(250));
  time_ += milliseconds(20);
  send_from(kSelfLink, StopRequest{15});
  EXPECT_TRUE(over_.empty());
  ASSERT_TRUE(saves_.contains(kSelfLink) && saves_.contains(kOther));
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

// The end of the job waits only for the confirmation of one node. That node reconnects before the coordinator detects that its
// old connection is lost. The node must still count as connected, so that it is informed of the end.
TEST_F(RunningRound, LastReconnectingNodeReceivesTheEnd) {
  silent_.insert(kOther);
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, StopRequest{15});
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, Stopped{.round = round(), .saved = true});
  EXPECT_TRUE(endings_.contains(kOther));
  EXPECT_FALSE(job_over_.has_value());
  join(kThird, 2);
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_TRUE(job_over_links_.contains(kThird));
  EXPECT_EQ(job_over_->exit_code, 85);
  EXPECT_TRUE(closed_.contains(kThird));
}

// Regression: while stop signals were arriving, the round ended to admit a new node. Then each node that had received a signal
// left without a save.
TEST_F(RunningRound, NoNodeIsAdmittedWhileSignalsArrive) {
  join(kThird, 3);
  time_ += milliseconds(1900);
  for (const LinkId link : {kSelfLink, kOther, kThird}) ping(link);
  EXPECT_FALSE(coordinator_.is_stopping());
  send_from(kSelfLink, StopRequest{15});
  EXPECT_TRUE(coordinator_.is_stopping());
  time_ += milliseconds(150);
  tick();
  EXPECT_TRUE(over_.empty());
  send_from(kOther, StopRequest{15});
  EXPECT_TRUE(over_.empty());
  EXPECT_TRUE(saves_.contains(kSelfLink) && saves_.contains(kOther));
  EXPECT_TRUE(coordinator_.is_stopping());
}

TEST_F(RunningRound, SingleSignaledNodeLeavesAfterTheDelay) {
  send_from(kOther, StopRequest{15});
  time_ += milliseconds(249);
  tick();
  EXPECT_TRUE(over_.empty());
  time_ += milliseconds(1);
  tick();
  ASSERT_TRUE(over_.contains(kOther));
  EXPECT_TRUE(over_.at(kSelfLink).hold);
  EXPECT_NE(over_.at(kSelfLink).why.find("is leaving"), std::string::npos);
}

TEST_F(RunningRound, NodeWithUnholdableWorkersLeavesAfterASave) {
  send_from(kOther, StopRequest{15, true});
  time_ += milliseconds(250);
  tick();
  EXPECT_TRUE(over_.empty());
  ASSERT_TRUE(saves_.contains(kSelfLink) && saves_.contains(kOther));
  EXPECT_TRUE(saves_.at(kSelfLink).continues);
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, Stopped{.round = round(), .saved = true});
  EXPECT_FALSE(job_over_.has_value());
  ASSERT_TRUE(over_.contains(kSelfLink) && over_.contains(kOther));
  EXPECT_NE(over_.at(kSelfLink).why.find("is leaving"), std::string::npos);
  const RoundId first = round();
  send_from(kOther, Leave{"a signal"});
  send_from(kSelfLink, Ready{.round = first, .master_port = 1});
  EXPECT_GT(round(), first);
}

TEST_F(RunningRound, SecondSignalEndsTheJobWithTheSave) {
  send_from(kOther, StopRequest{15, true});
  time_ += milliseconds(250);
  tick();
  send_from(kSelfLink, StopRequest{15, true});
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, Stopped{.round = round(), .saved = true});
  EXPECT_TRUE(over_.empty());
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

TEST_F(RunningRound, NodeThatFinishesBeforeLeavingEndsNoRound) {
  send_from(kOther, StopRequest{15});
  send_from(kOther, Done{round()});
  send_from(kOther, Leave{"a signal"});
  time_ += milliseconds(300);
  tick();
  EXPECT_TRUE(over_.empty());
  send_from(kSelfLink, Done{round()});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 0);
}

// Held workers have kept their state between two rounds. After a stop signal that state must be saved, so a round is started
// only for this save.
TEST_F(RunningRound, SignalDuringAHoldSavesInTheNextRound) {
  const RoundId first = round();
  send_from(kOther, Leave{"a signal"});
  ASSERT_TRUE(over_.at(kSelfLink).hold);
  send_from(kSelfLink, StopRequest{15});
  EXPECT_FALSE(job_over_.has_value());
  send_from(kSelfLink, Ready{.round = first, .master_port = 1});
  EXPECT_GT(round(), first);
  ASSERT_TRUE(saves_.contains(kSelfLink));
  EXPECT_EQ(saves_.at(kSelfLink).round, round());
  send_from(kSelfLink, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

// A job of three nodes in a running round.
class ThreeTrain : public RunningRound {
 protected:
  explicit ThreeTrain(std::int32_t min_nodes = 1) : RunningRound(min_nodes) {
    join(kThird, 3);
    time_ += milliseconds(2500);
    tick();
    const RoundId first = round();
    for (const LinkId link : {kSelfLink, kOther}) send_from(link, Ready{.round = first, .master_port = 1});
    for (const LinkId link : {kSelfLink, kOther, kThird}) ping(link);
    over_.clear();
  }
};

// The third node is lost, so the round ends. Another node receives a signal before the coordinator's own node receives one.
class EndingRound : public ThreeTrain {
 protected:
  EndingRound() {
    last_ = round();
    on(node_event::LinkClosed{kThird});
  }
  void both_are_ready() {
    for (const LinkId link : {kSelfLink, kOther}) send_from(link, Ready{.round = last_, .master_port = 1});
  }
  RoundId last_{};
};

TEST_F(EndingRound, SignalsToAllNodesStillSave) {
  ASSERT_TRUE(over_.at(kOther).hold);
  send_from(kOther, StopRequest{15});
  both_are_ready();
  EXPECT_EQ(round(), last_);
  EXPECT_TRUE(may_leave_links_.empty());
  time_ += milliseconds(20);
  send_from(kSelfLink, StopRequest{15});
  EXPECT_GT(round(), last_);
  EXPECT_EQ(released_.at(kOther).nodes, 2);
  ASSERT_TRUE(saves_.contains(kSelfLink) && saves_.contains(kOther));
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

TEST_F(EndingRound, SingleSignaledNodeLeavesAndOthersContinue) {
  send_from(kOther, StopRequest{15});
  both_are_ready();
  time_ += milliseconds(250);
  tick();
  EXPECT_EQ(may_leave_links_, std::set<LinkId>{kOther});
  EXPECT_EQ(round(), last_);  // The next round waits until the node with the signal has left.
  send_from(kOther, Leave{"a signal"});
  EXPECT_GT(round(), last_);
  EXPECT_EQ(released_.at(kSelfLink).nodes, 1);
  EXPECT_FALSE(saves_.contains(kSelfLink));
}

TEST_F(RunningRound, NodeLeavesImmediatelyWithoutHeldState) {
  send_from(kSelfLink, failure(false));
  send_from(kOther, StopRequest{15});
  EXPECT_EQ(may_leave_links_, std::set<LinkId>{kOther});
}

TEST_F(RunningRound, SignalWithoutASaveReportsTheReason) {
  send_from(kOther, failure(false));
  send_from(kSelfLink, StopRequest{15});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 143);
  EXPECT_EQ(job_over_->why, "stopped by signal 15 without saving: a round had failed");
}

// A job that needs at least two of its three nodes. If two nodes receive a signal, the third node cannot continue alone.
class TwoOfThree : public ThreeTrain {
 protected:
  TwoOfThree() : ThreeTrain(2) {}
};

TEST_F(TwoOfThree, SignalsToTooManyNodesSave) {
  ASSERT_EQ(released_.at(kThird).nodes, 3);
  send_from(kOther, StopRequest{15});
  EXPECT_TRUE(saves_.empty());
  send_from(kThird, StopRequest{15});
  EXPECT_TRUE(over_.empty());
  EXPECT_EQ(saves_.size(), 3u);
}

// A node receives a stop signal, but the round ends for another reason before the coordinator handles the signal. The signal
// must still take effect.
TEST_F(TwoOfThree, SignalBeforeTheRoundEndsIsKept) {
  const RoundId last = round();
  send_from(kOther, StopRequest{15});
  on(node_event::LinkClosed{kThird});
  ASSERT_TRUE(over_.at(kOther).hold);
  EXPECT_TRUE(may_leave_links_.empty());
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, Ready{.round = last, .master_port = 1});
  // Without the node that got the signal, too few nodes would remain. So the signal must end the job.
  ASSERT_TRUE(saves_.contains(kSelfLink) && saves_.contains(kOther));
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

TEST_F(TwoOfThree, LeavingCoordinatorTransfersAfterWorkersEnd) {
  const RoundId last = round();
  send_from(kSelfLink, StopRequest{15});
  EXPECT_TRUE(saves_.empty());
  time_ += seconds(1);
  for (const LinkId link : {kSelfLink, kOther, kThird}) ping(link);
  tick();
  ASSERT_TRUE(over_.contains(kOther));
  send_from(kSelfLink, Leave{"a signal"});
  send_from(kOther, Ready{.round = last, .master_port = 1});
  EXPECT_TRUE(transfers_.empty());
  send_from(kThird, Ready{.round = last, .master_port = 1});
  ASSERT_TRUE(transfers_.contains(kOther) && transfers_.contains(kThird));
  EXPECT_EQ(transfers_.at(kThird).to.node, NodeId{2});
  EXPECT_EQ(transfers_.at(kThird).state.current.rank, 0);
  EXPECT_TRUE(stepped_down_.has_value());
  EXPECT_FALSE(job_over_.has_value());
}

// The workers of a lost node may run until their lease ends. So the transfer of the leadership must wait until the lease has
// ended.
TEST_F(TwoOfThree, TransferWaitsALeaseForLostWorkers) {
  const RoundId last = round();
  send_from(kSelfLink, StopRequest{15});
  time_ += seconds(1);
  for (const LinkId link : {kSelfLink, kOther, kThird}) ping(link);
  tick();
  send_from(kSelfLink, Leave{"a signal"});
  send_from(kOther, Ready{.round = last, .master_port = 1});
  on(node_event::LinkClosed{kThird});
  EXPECT_TRUE(transfers_.empty());
  wait(seconds(4), {kOther});
  EXPECT_TRUE(transfers_.empty());
  wait(seconds(2), {kOther});
  EXPECT_TRUE(transfers_.contains(kOther));
}

TEST_F(TwoOfThree, SignalWithTooFewNodesSavesHeldState) {
  const RoundId first = round();
  send_from(kOther, Leave{"a signal"});
  send_from(kThird, Leave{"a signal"});
  send_from(kSelfLink, StopRequest{15});
  send_from(kSelfLink, Ready{.round = first, .master_port = 1});
  ASSERT_TRUE(saves_.contains(kSelfLink));
  EXPECT_TRUE(saves_.at(kSelfLink).held);
  EXPECT_FALSE(job_over_.has_value());
  send_from(kSelfLink, Stopped{.round = first});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 143);
  EXPECT_NE(job_over_->why.find("fewer nodes are left than --nnodes requires"), std::string::npos);
}

}  // namespace
}  // namespace ddprun::rendezvous
