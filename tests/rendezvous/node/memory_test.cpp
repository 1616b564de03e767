// Which node leads without an election. Depending on its memory of earlier processes of its job, the first node leads
// immediately, queries, waits until no other round can run, or continues to look for the job that it remembers.
#include "rendezvous/node/memory.hpp"

#include <gtest/gtest.h>

#include "rendezvous/node/node.hpp"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;

class AFirstNode : public testing::Test {
 protected:
  NodeSettings settings() const {
    NodeSettings settings;
    settings.member.id = {1};
    settings.member.incarnation = std::uint64_t{5} << 40U;
    settings.member.listens = {"10.0.0.1", 7};
    settings.coordinator.min_nodes = 1;
    settings.coordinator.max_nodes = 3;
    settings.coordinator.last_call = milliseconds(500);
    settings.leads_first = true;
    settings.alone = alone_;
    return settings;
  }
  void start(Memory memory) {
    node_.emplace(settings(), std::move(memory), now());
    carry_out(node_->on(node_event::Begin{}, now()));
  }
  Now now() const { return {Time(nanoseconds(at_)), 0}; }
  // Passes time, and sends each Tick that is due.
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
      const auto* dial = std::get_if<member_action::Dial>(&action);
      if (dial != nullptr && (dial->link & kAnnounce) != 0) announcements_.push_back(dial->link);
      forgot_ = forgot_ || std::holds_alternative<node_action::Forget>(action);
      trains_ = trains_ || std::holds_alternative<member_action::StartWorkers>(action);
    }
  }
  // Other nodes without any memory join and answer.
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
  // One of them, which has installed that round.
  void ping(LinkId link, const RoundId& round) {
    const Ping ping{.stamp = 1, .echo = stamp_of(now().steady), .realtime_ns = 0, .installed = round};
    carry_out(node_->on(node_event::FromDialler{.link = link, .message = ping}, now()));
  }
  bool leads() const { return node_->coordinator() != nullptr; }
  static Memory a_round_of_three() {
    Memory memory;
    Memory::Self self{.id = {9}, .record = {}};
    self.record.state = {
        .promised_term = 1, .current = {.id = {1, 0}, .born = 1, .nodes = 3, .rank = 0}, .previous = {}, .budget = {}};
    memory.self = self;
    return memory;
  }

  bool alone_ = false;
  nanoseconds at_ = seconds(1000);
  std::optional<Node> node_;
  std::optional<Memory::Self> kept_;
  std::vector<LinkId> announcements_;
  bool forgot_ = false;
  bool trains_ = false;
};

TEST_F(AFirstNode, LeadsAtOnceWhereNothingIsRemembered) {
  start({});
  EXPECT_TRUE(leads());
  pass(seconds(1));
  EXPECT_TRUE(trains_);
}

TEST_F(AFirstNode, AsksForALeaseWhereThePlaceOfItsMemoryIsNew) {
  start({.self = {}, .job_elsewhere = false, .places = {}, .kept = false});
  pass(seconds(6));
  EXPECT_FALSE(trains_);
  pass(seconds(1));
  EXPECT_TRUE(trains_);
}

// It was killed while it queried, and the next process found its record, which has no round.
TEST_F(AFirstNode, AsksForALeaseAlsoWhereAnotherOneHasNotAskedToTheEnd) {
  start({.self = {}, .job_elsewhere = false, .places = {}, .kept = false});
  pass(seconds(2));
  ASSERT_TRUE(kept_);
  start({.self = *kept_, .job_elsewhere = false, .places = {}, .kept = true});
  pass(seconds(6));
  EXPECT_FALSE(trains_);
  pass(seconds(1));
  EXPECT_TRUE(trains_);
  EXPECT_FALSE(kept_->record.place_is_new);
}

// All of its nodes get a signal while it looks for nodes elsewhere. If it stepped down to be elected again for those, no node
// could save.
TEST_F(AFirstNode, StepsDownForNobodyWhileItsJobIsStopped) {
  for (const bool stops : {false, true}) {
    start({.self = {}, .job_elsewhere = false, .places = {{"10.0.0.9", 7}}, .kept = true});
    pass(milliseconds(900));
    announcements_.clear();
    pass(seconds(5));
    ASSERT_EQ(announcements_.size(), 1u);
    if (stops) carry_out(node_->on(node_event::Local{member_event::StopRequested{15}}, now()));
    const Redirect later{.term = std::uint64_t{1} << 40U, .coordinator = {}};
    carry_out(node_->on(node_event::FromListener{.link = announcements_.front(), .message = later}, now()));
    EXPECT_EQ(leads(), stops);
  }
}

TEST_F(AFirstNode, WaitsForAllWhereAJobMayRunOnAnyOfThem) {
  start({.self = {}, .job_elsewhere = true, .places = {}, .kept = true});
  pass(seconds(60));
  EXPECT_TRUE(leads());
  EXPECT_FALSE(trains_);
  ASSERT_TRUE(kept_);
  EXPECT_TRUE(kept_->record.job_elsewhere);  // the next process here must also know it
}

TEST_F(AFirstNode, TakesTheUsersWordThatNoneRuns) {
  alone_ = true;
  start({.self = {}, .job_elsewhere = true, .places = {}, .kept = true});
  pass(seconds(1));
  EXPECT_TRUE(trains_);
}

// A connection may outlast its node, and that node may be in another round by then.
TEST_F(AFirstNode, GrantsNothingBeforeAllOfThemKnowTheRound) {
  start({.self = {}, .job_elsewhere = true, .places = {}, .kept = true});
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

// Earlier, a timeout was enough to make it forget the round, and to train at the same time as the others.
TEST_F(AFirstNode, DoesNotForgetARoundSinceNobodyAnswers) {
  start(a_round_of_three());
  pass(seconds(300));
  EXPECT_FALSE(leads());
  EXPECT_TRUE(node_->looks_for_old_job());
  pass(seconds(400));  // join_timeout
  EXPECT_FALSE(forgot_);
  EXPECT_FALSE(trains_);
}

TEST_F(AFirstNode, ForgetsARoundOnTheUsersWord) {
  alone_ = true;
  start(a_round_of_three());
  EXPECT_TRUE(leads());
  pass(seconds(1));
  EXPECT_TRUE(trains_);
}

TEST_F(AFirstNode, ForgetsARoundWhenAllOthersAreHereAndKnowNone) {
  start(a_round_of_three());
  pass(seconds(11));
  EXPECT_FALSE(leads());
  welcome_others(2);
  EXPECT_TRUE(leads());
}

}  // namespace
}  // namespace ddprun::rendezvous
