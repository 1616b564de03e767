// Whether workers may wait for the next round with their state, as the coordinator says it to the nodes: what it depends on,
// and what it costs.
#include <gtest/gtest.h>

#include "rendezvous/coordinator/coordinator.hpp"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr LinkId kOther = 2;
constexpr LinkId kThird = 3;

// Of a job of two nodes, or three; the first round runs on two.
class RunningRound : public testing::Test {
 protected:
  RunningRound() {
    join(kSelfLink, 1);
    join(kOther, 2);
    time_ += seconds(3);  // nobody else comes
    tick();
    for (int turn = 0; turn < 2; ++turn) {
      for (const LinkId link : {kSelfLink, kOther}) ping(link);
    }
  }

  static CoordinatorSettings settings() {
    CoordinatorSettings settings;
    settings.self = {1};
    settings.min_nodes = 1;
    settings.max_nodes = 3;
    settings.judge = [](const FailureReport&, const Budget& before) {
      Verdict verdict;
      verdict.restart = true;
      verdict.after = before;
      ++verdict.after.used;
      return verdict;
    };
    return settings;
  }

  void on(const CoordinatorEvent& event) {
    for (CoordinatorAction& action : coordinator_.on(event, {time_, 0})) {
      const auto* send = std::get_if<coordinator_action::Send>(&action);
      if (send == nullptr) continue;
      if (const auto* over = std::get_if<RoundOver>(&send->message)) over_[send->link] = *over;
      if (const auto* release = std::get_if<Release>(&send->message)) released_[send->link] = *release;
      if (const auto* pong = std::get_if<Pong>(&send->message)) stamps_[send->link] = pong->stamp;
      if (const auto* over = std::get_if<JobOver>(&send->message)) job_over_ = *over;
    }
  }
  void says(LinkId link, FromMember message) { on(coordinator_event::Heard{link, std::move(message)}); }
  void tick() { on(coordinator_event::Tick{}); }
  void join(LinkId link, std::uint8_t node, Workers workers = Workers::kNone) {
    on(coordinator_event::Opened{link});
    Hello hello;
    hello.node = {node};
    hello.incarnation = 1;
    hello.attempt = ++hellos_;
    hello.workers = workers;
    if (workers != Workers::kNone) hello.workers_round = round();
    hello.listens = {"10.0.0." + std::to_string(node), 29400};
    says(link, hello);
  }
  void ping(LinkId link) {
    says(link, Ping{.stamp = stamp_of(time_), .echo = stamps_[link], .realtime_ns = 0, .installed = released_[link].id});
  }
  RoundId round() const { return released_.at(kSelfLink).id; }
  FailureReport failure(bool others_stay) const {
    FailureReport report;
    report.round = round();
    report.message = "rank 1 failed";
    report.others_stay = others_stay;
    return report;
  }

  Time time_{seconds(1000)};
  Coordinator coordinator_{settings(), Authority{}, {time_, 0}};
  std::map<LinkId, RoundOver> over_;
  std::map<LinkId, Release> released_;
  std::map<LinkId, std::int64_t> stamps_;
  std::optional<JobOver> job_over_;
  std::uint64_t hellos_ = 0;
};

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
  EXPECT_EQ(released_.at(kOther).budget.used, 1);
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
  EXPECT_TRUE(over_.at(kSelfLink).hold);
}

// A node whose workers did not come together again says so by having none: what the others made of it is not to be trusted on.
TEST_F(RunningRound, NobodyWaitsWhenANodeCouldNotGoOnWithWhatItHeld) {
  says(kOther, Ready{.round = round(), .master_port = 1});
  EXPECT_FALSE(over_.at(kSelfLink).hold);
  EXPECT_FALSE(over_.at(kOther).hold);
}

// ---- a node that has finished ----

TEST_F(RunningRound, AFinishedNodeThatComesBackEndsNobodysRound) {
  says(kOther, Done{round()});
  on(coordinator_event::Closed{kOther});
  EXPECT_TRUE(over_.empty());
  join(kThird, 2, Workers::kDone);
  says(kThird, Done{round()});
  says(kThird, Ready{.round = round(), .master_port = 1});  // an agent that says it all the same
  EXPECT_TRUE(over_.empty());
  says(kSelfLink, Done{round()});
  ASSERT_TRUE(job_over_.has_value());
  EXPECT_EQ(job_over_->exit_code, 0);
}

// The connection broke after its workers had ended, and the node saw it first.
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
  on(coordinator_event::Closed{kSelfLink});  // who has not finished still ends it
  EXPECT_TRUE(over_.contains(kThird));
}

}  // namespace
}  // namespace ddprun::rendezvous
