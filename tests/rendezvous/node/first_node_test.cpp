// Tests which node leads without an election. The records of earlier processes determine what the first node of a job does: it
// leads immediately, queries other nodes first, waits until no other round can be running, or searches for the recorded job.
#include "rendezvous/node/restored_state.hpp"

#include <gtest/gtest.h>

#include "rendezvous/node/node.hpp"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;

class FirstNode : public testing::Test {
 protected:
  NodeSettings settings() const {
    NodeSettings settings;
    settings.member.node = {1};
    settings.member.incarnation = std::uint64_t{5} << 40U;
    settings.member.listens = {"10.0.0.1", 7};
    settings.coordinator.min_nodes = 1;
    settings.coordinator.max_nodes = 3;
    settings.coordinator.last_call = milliseconds(500);
    settings.leads_first = true;
    settings.alone = alone_;
    return settings;
  }
  void start(RestoredState restored) {
    node_.emplace(settings(), std::move(restored), now());
    carry_out(node_->on(node_event::Begin{}, now()));
  }
  Now now() const { return {Time(nanoseconds(at_)), 0}; }
  // Advances the time, and sends each Tick that is due.
  void pass(nanoseconds time) {
    const nanoseconds end = at_ + time;
    while (true) {
      const auto next = node_->next_deadline();
      if (!next || next->time_since_epoch() > end) break;
      at_ = std::max(at_, nanoseconds(next->time_since_epoch()));
      carry_out(node_->on(node_event::Tick{}, now()));
      at_ += milliseconds(1);
    }
    at_ = end;
    carry_out(node_->on(node_event::Tick{}, now()));
  }
  void carry_out(const std::vector<NodeAction>& actions) {
    for (const NodeAction& action : actions) {
      if (const auto* remember = std::get_if<member_action::Remember>(&action)) kept_ = {remember->node, remember->record};
      const auto* dial = std::get_if<node_action::Dial>(&action);
      if (dial != nullptr && (dial->link & kAnnounce) != 0) announcements_.push_back(dial->link);
      forgot_ = forgot_ || std::holds_alternative<node_action::Forget>(action);
      trains_ = trains_ || std::holds_alternative<member_action::StartWorkers>(action);
    }
  }
  // Lets nodes without a record join and answer their Welcome.
  void welcome_others(int count) {
    for (int i = 0; i < count; ++i) {
      const LinkId link = 10 + static_cast<LinkId>(i);
      Hello hello;
      hello.node = {static_cast<std::uint8_t>(20 + i)};
      hello.listens = {"10.0.0.2", static_cast<std::uint16_t>(100 + i)};
      carry_out(node_->on(node_event::LinkOpened{.link = link, .local_host = {}}, now()));
      carry_out(node_->on(node_event::FromDialler{.link = link, .message = hello}, now()));
      ping(link, {});
    }
  }
  // Sends a ping from the node of `link`, which has installed (recorded) `round`.
  void ping(LinkId link, const RoundId& round) {
    const Ping ping{.stamp = 1, .echo = stamp_of(now().steady), .realtime_ns = 0, .installed = round};
    carry_out(node_->on(node_event::FromDialler{.link = link, .message = ping}, now()));
  }
  bool leads() const { return node_->coordinator() != nullptr; }
  static RestoredState round_of_three() {
    RestoredState restored;
    RestoredState::Identity self{.id = {9}, .record = {}};
    self.record.state = {
        .promised_term = 1, .current = {.id = {1, 0}, .born = 1, .nodes = 3, .rank = 0}, .previous = {}, .budget = {}};
    restored.self = self;
    return restored;
  }

  bool alone_ = false;
  nanoseconds at_ = seconds(1000);
  std::optional<Node> node_;
  std::optional<RestoredState::Identity> kept_;
  std::vector<LinkId> announcements_;
  bool forgot_ = false;
  bool trains_ = false;
};

TEST_F(FirstNode, LeadsImmediatelyWithoutARecord) {
  start({});
  EXPECT_TRUE(leads());
  pass(seconds(1));
  EXPECT_TRUE(trains_);
}

TEST_F(FirstNode, ProbesForALeaseWithNewStorage) {
  start({.self = {}, .job_elsewhere = false, .addresses = {}, .had_storage = false});
  pass(seconds(6));
  EXPECT_FALSE(trains_);
  pass(seconds(1));
  EXPECT_TRUE(trains_);
}

// The node was killed while it queried other nodes. The next process finds a record without a round, and must repeat the
// queries.
TEST_F(FirstNode, ProbesForALeaseAfterAnInterruptedProbe) {
  start({.self = {}, .job_elsewhere = false, .addresses = {}, .had_storage = false});
  pass(seconds(2));
  ASSERT_TRUE(kept_);
  start({.self = *kept_, .job_elsewhere = false, .addresses = {}, .had_storage = true});
  pass(seconds(6));
  EXPECT_FALSE(trains_);
  pass(seconds(1));
  EXPECT_TRUE(trains_);
  EXPECT_FALSE(kept_->record.place_is_new);
}

// All nodes of the job receive a stop signal while the coordinator searches for nodes at other addresses. The coordinator must
// not step down for an election with those nodes, because then no node could save.
TEST_F(FirstNode, DoesNotStepDownDuringAStop) {
  for (const bool stops : {false, true}) {
    start({.self = {}, .job_elsewhere = false, .addresses = {{"10.0.0.9", 7}}, .had_storage = true});
    pass(milliseconds(900));
    announcements_.clear();
    pass(seconds(5));
    ASSERT_EQ(announcements_.size(), 1u);
    if (stops) carry_out(node_->on(node_event::Local{StopRequest{15}}, now()));
    const Redirect later{.term = std::uint64_t{1} << 40U, .coordinator = {}};
    carry_out(node_->on(node_event::FromListener{.link = announcements_.front(), .message = later}, now()));
    EXPECT_EQ(leads(), stops);
  }
}

TEST_F(FirstNode, WaitsForAllNodesIfAJobMayRunElsewhere) {
  start({.self = {}, .job_elsewhere = true, .addresses = {}, .had_storage = true});
  pass(seconds(60));
  EXPECT_TRUE(leads());
  EXPECT_FALSE(trains_);
  ASSERT_TRUE(kept_);
  EXPECT_TRUE(kept_->record.job_elsewhere);  // the flag is stored, so that the next process on this node reads it
}

TEST_F(FirstNode, ForceNewJobSkipsTheWait) {
  alone_ = true;
  start({.self = {}, .job_elsewhere = true, .addresses = {}, .had_storage = true});
  pass(seconds(1));
  EXPECT_TRUE(trains_);
}

// A connection may stay open after its node was restarted, and the restarted node may be in another round. So an open
// connection does not prove that the node has installed the round. No time is granted to workers before all nodes have
// installed it.
TEST_F(FirstNode, GrantsNothingBeforeAllInstalledTheRound) {
  start({.self = {}, .job_elsewhere = true, .addresses = {}, .had_storage = true});
  welcome_others(2);
  pass(milliseconds(100));
  const RoundId round = node_->coordinator()->round();
  ASSERT_GE(round.round, 0);
  ping(10, round);
  pass(milliseconds(1500));
  EXPECT_FALSE(trains_);
  ping(10, round);
  ping(11, round);
  pass(milliseconds(1500));
  EXPECT_TRUE(trains_);
}

// Regression: after a timeout the node deleted the recorded round. It then trained at the same time as the other nodes.
TEST_F(FirstNode, TimeoutDoesNotForgetTheRound) {
  start(round_of_three());
  pass(seconds(300));
  EXPECT_FALSE(leads());
  EXPECT_TRUE(node_->searches_for_old_job());
  pass(seconds(400));  // longer than join_timeout
  EXPECT_FALSE(forgot_);
  EXPECT_FALSE(trains_);
}

TEST_F(FirstNode, ForceNewJobForgetsTheRound) {
  alone_ = true;
  start(round_of_three());
  EXPECT_TRUE(leads());
  pass(seconds(1));
  EXPECT_TRUE(trains_);
}

TEST_F(FirstNode, ForgetsTheRoundIfNoOtherNodeKnowsOne) {
  start(round_of_three());
  pass(seconds(11));
  EXPECT_FALSE(leads());
  welcome_others(2);
  EXPECT_TRUE(leads());
}

}  // namespace
}  // namespace ddprun::rendezvous
