// Tests when the coordinator holds workers (which then keep their state for the next round). Also tests when the end of a
// round counts as a restart. It also tests nodes whose workers have finished.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

TEST_F(RunningRound, WorkersAreHeldAfterAFailureThatSparesThem) {
  ASSERT_EQ(released_.at(kOther).nodes, 2);
  send_from(kOther, failure(true));
  EXPECT_TRUE(over_.at(kSelfLink).hold);
  EXPECT_TRUE(over_.at(kOther).hold);
}

TEST_F(RunningRound, WorkersAreStoppedAfterOtherFailures) {
  send_from(kOther, failure(false));
  EXPECT_FALSE(over_.at(kSelfLink).hold);
  EXPECT_FALSE(over_.at(kOther).hold);
}

TEST_F(RunningRound, FailureWithHeldWorkersCostsARestart) {
  const RoundId first = round();
  send_from(kOther, failure(true));
  for (const LinkId link : {kSelfLink, kOther}) send_from(link, Ready{.round = first, .master_port = 1});
  EXPECT_GT(round(), first);
  EXPECT_EQ(released_.at(kOther).budget.restart_count, 1);
  EXPECT_EQ(released_.at(kOther).budget.history.used, 1);
}

TEST_F(RunningRound, LostNodeHoldsWorkersAndCostsNoRestart) {
  const RoundId first = round();
  on(node_event::LinkClosed{kOther});
  EXPECT_TRUE(over_.at(kSelfLink).hold);
  send_from(kSelfLink, Ready{.round = first, .master_port = 1});
  EXPECT_GT(round(), first);
  EXPECT_EQ(released_.at(kSelfLink).budget.restart_count, 0);
}

TEST_F(RunningRound, JoiningNodeHoldsWorkers) {
  join(kThird, 3);
  time_ += milliseconds(2500);
  tick();
  ASSERT_TRUE(over_.contains(kSelfLink));
  EXPECT_TRUE(over_.at(kSelfLink).hold);
  EXPECT_TRUE(over_.at(kOther).hold);
}

TEST_F(RunningRound, LeavingNodeHoldsWorkers) {
  send_from(kOther, StopRequest{15});
  time_ += milliseconds(250);
  tick();
  ASSERT_TRUE(over_.contains(kSelfLink));
  EXPECT_TRUE(over_.at(kSelfLink).hold);
}

// The workers of one node could not form a process group again, so that node reports that it has no workers. The workers of the
// other nodes must then drop their state too.
TEST_F(RunningRound, FailedRegroupStopsHeldWorkers) {
  send_from(kOther, Ready{.round = round(), .master_port = 1});
  EXPECT_FALSE(over_.at(kSelfLink).hold);
  EXPECT_FALSE(over_.at(kOther).hold);
}

// A stop signal arrives while the replacement worker on the other node is still loading. The waiting workers must save.
TEST_F(RunningRound, StopSignalSavesHeldState) {
  for (const LinkId link : {kOther, kSelfLink}) send_from(link, StopRequest{15});
  ASSERT_TRUE(saves_.contains(kSelfLink));
  EXPECT_FALSE(saves_.at(kSelfLink).held);
  saves_.clear();
  send_from(kOther, StopReady{.round = round(), .started = 7});
  send_from(kSelfLink, Stopped{.round = round(), .holds = true});
  ASSERT_TRUE(saves_.contains(kSelfLink)) << "nothing is awaited from the other node";
  EXPECT_TRUE(saves_.at(kSelfLink).held);
  EXPECT_FALSE(saves_.contains(kOther));
  send_from(kOther, Stopped{.round = round()});
  EXPECT_FALSE(job_over_.has_value());
  send_from(kSelfLink, StopReady{.round = round(), .started = 40});
  send_from(kSelfLink, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

// On other nodes, workers may still be waiting for a process group. So the node that reports held state must be the first to
// receive the request to save.
TEST_F(RunningRound, NodeThatReportsHeldStateSavesFirst) {
  for (const LinkId link : {kOther, kSelfLink}) send_from(link, StopRequest{15});
  saves_.clear();
  send_from(kOther, Stopped{.round = round(), .holds = true});
  ASSERT_TRUE(saves_.contains(kOther));
  EXPECT_TRUE(saves_.at(kOther).held);
  EXPECT_FALSE(saves_.contains(kSelfLink));
}

// ---- No further round is possible ----

class NoReplacement : public RunningRound {
 protected:
  // Ends the round: the worker that replaces a lost worker on the other node fails with the given cause. `others_stay` is the
  // field of the failure report.
  void ends(Cause cause, bool others_stay) {
    FailureReport last = failure(others_stay);
    last.failed.cause = cause;
    last.message = kLastFailure;
    send_from(kOther, last);
    for (const LinkId link : {kSelfLink, kOther}) send_from(link, Ready{.round = round(), .master_port = 1});
  }
};

TEST_F(NoReplacement, HeldStateIsSavedBeforeTheJobEnds) {
  ends(Cause::kLateUsage, true);
  ASSERT_TRUE(saves_.contains(kSelfLink));
  EXPECT_TRUE(saves_.at(kSelfLink).held);
  EXPECT_FALSE(saves_.contains(kOther)) << "two would write one checkpoint";
  EXPECT_FALSE(job_over_.has_value());
  send_from(kSelfLink, StopReady{.round = round(), .started = 40});
  send_from(kSelfLink, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
  EXPECT_EQ(job_over_->why, "0 of 0 restarts are left; the state held by the other workers is saved: run it again to continue");
}

// If the job were started again, it would fail too, because of the bad data. So the exit code must not request a restart, even
// after a successful save.
TEST_F(NoReplacement, BadDataKeepsItsExitCodeAfterTheSave) {
  ends(Cause::kUsage, true);
  send_from(kSelfLink, StopReady{.round = round(), .started = 40});
  send_from(kSelfLink, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 2);
  EXPECT_EQ(job_over_->why, "0 of 0 restarts are left; the state held by the other workers is saved");
}

TEST_F(NoReplacement, NodesAreTriedUntilOneHasSaved) {
  ends(Cause::kLateUsage, true);
  send_from(kSelfLink, Stopped{.round = round()});
  ASSERT_TRUE(saves_.contains(kOther));
  EXPECT_TRUE(saves_.at(kOther).held);
  send_from(kOther, Stopped{.round = round(), .saved = true});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 85);
}

TEST_F(NoReplacement, FailedSavesKeepTheExitCodeOfTheFailure) {
  ends(Cause::kLateUsage, true);
  send_from(kSelfLink, Stopped{.round = round()});
  on(node_event::LinkClosed{kOther});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 2);
}

TEST_F(NoReplacement, SuspectStateIsNotSaved) {
  ends(Cause::kCorruptState, true);
  EXPECT_TRUE(saves_.empty());
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 2);
}

TEST_F(NoReplacement, NothingIsSavedWithoutHeldWorkers) {
  ends(Cause::kLateUsage, false);
  EXPECT_TRUE(saves_.empty());
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 2);
}

// ---- A node whose workers have finished ----

TEST_F(RunningRound, ReturningFinishedNodeEndsNoRound) {
  send_from(kOther, Done{round()});
  on(node_event::LinkClosed{kOther});
  EXPECT_TRUE(over_.empty());
  join(kThird, 2, Workers::kDone);
  send_from(kThird, Done{round()});
  // A faulty agent reports Ready even though its workers have finished.
  send_from(kThird, Ready{.round = round(), .master_port = 1});
  EXPECT_TRUE(over_.empty());
  send_from(kSelfLink, Done{round()});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 0);
}

// The connection breaks just after the workers have finished, so the Done message is lost. The node reconnects before the
// coordinator detects the lost connection. Its Hello must count as Done.
TEST_F(RunningRound, LostDoneMessageIsRepeatedByTheHello) {
  join(kThird, 2, Workers::kDone);
  EXPECT_TRUE(over_.empty());
  send_from(kSelfLink, Done{round()});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 0);
}

TEST_F(RunningRound, ReconnectingFinishedNodeIsCountedOnce) {
  send_from(kOther, Done{round()});
  for (int turn = 0; turn < 3; ++turn) {
    on(node_event::LinkClosed{turn == 0 ? kOther : kThird});
    join(kThird, 2, Workers::kDone);
  }
  send_from(kThird, Done{round()});
  EXPECT_FALSE(job_over_.has_value());
  EXPECT_TRUE(over_.empty());
  on(node_event::LinkClosed{kSelfLink});  // a node that has not finished is lost, so the round must end
  EXPECT_TRUE(over_.contains(kThird));
}

// ---- How nodes are informed of the end of the job ----

TEST_F(RunningRound, EndsWhenAllConnectedNodesAcceptTheEnd) {
  silent_ = {kOther};
  send_from(kSelfLink, Done{round()});
  send_from(kOther, Done{round()});
  ASSERT_TRUE(endings_.contains(kOther));
  EXPECT_EQ(endings_.at(kOther).exit_code, 0);
  EXPECT_FALSE(job_over_.has_value()) << "it may be lost now, and the other one would run the job again";
  send_from(kOther, EndAccepted{endings_.at(kOther).origin});
  EXPECT_TRUE(job_over_.has_value());
}

TEST_F(RunningRound, EndDoesNotWaitForLostNodes) {
  silent_ = {kOther};
  send_from(kSelfLink, Done{round()});
  send_from(kOther, Done{round()});
  on(node_event::LinkClosed{kOther});
  EXPECT_TRUE(job_over_.has_value()) << "with the first node, half of the two is a majority";
}

// The previous coordinator proposed the end of the job only to this node, and was then lost. This node must complete the end.
TEST_F(RunningRound, CompletesTheEndOfItsPredecessor) {
  on(node_event::LinkClosed{kOther});
  on(node_event::LinkOpened{kThird});
  Hello hello;
  hello.node = {2};
  hello.incarnation = 1;
  hello.attempt = ++hellos_;
  hello.workers = Workers::kDone;
  hello.workers_round = round();
  hello.ending = {.origin = round(), .exit_code = 7, .why = "the restarts are spent"};
  hello.listens = {"10.0.0.2", 29400};
  send_from(kThird, hello);
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 7);
  EXPECT_EQ(job_over_->why, "the restarts are spent");
}

}  // namespace
}  // namespace ddprun::rendezvous
