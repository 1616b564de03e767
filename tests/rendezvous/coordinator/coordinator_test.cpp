// Tests the grants of a coordinator (times for which workers may run), and when it answers pings. The simulator would not
// detect a late answer in these cases.
#include "rendezvous/coordinator/coordinator.hpp"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr LinkId kSelfNode = 1;
constexpr LinkId kOtherNode = 2;
constexpr LinkId kFailed = 3;

// Three nodes take part in round 1 of term 1. The coordinator of term 1 is lost, and node 2 is elected with the vote of node 3.
class ElectedCoordinator : public testing::Test {
 protected:
  static PersistentState state(std::int32_t rank) {
    PersistentState state;
    state.promised_term = 2;
    state.current = Config{.id = {1, 1}, .born = 1, .nodes = 3, .rank = rank};
    return state;
  }
  static CoordinatorSettings settings() {
    CoordinatorSettings settings;
    settings.self = {2};
    settings.min_nodes = 2;
    settings.max_nodes = 3;
    settings.judge = [](const FailureReport&, const Budget&) {
      return Verdict{.exit_code = 2, .others_save = true, .why = "the restarts are spent"};
    };
    return settings;
  }

  void on(const CoordinatorEvent& event) {
    for (CoordinatorAction& action : coordinator_->on(event, {time_, 0})) {
      const auto* send = std::get_if<node_action::ToDialler>(&action);
      if (send == nullptr) continue;
      if (const auto* pong = std::get_if<Pong>(&send->message)) pongs_[send->link].push_back(*pong);
      if (const auto* release = std::get_if<Release>(&send->message)) rounds_[send->link] = release->id;
      if (const auto* save = std::get_if<StopAndSave>(&send->message)) saves_.emplace_back(send->link, *save);
      if (const auto* ending = std::get_if<ProposeEnd>(&send->message)) exit_code_ = ending->ending.exit_code;
    }
  }
  void join(LinkId link, std::uint8_t node, std::int32_t rank) {
    on(node_event::LinkOpened{link});
    Hello hello;
    hello.node = {node};
    hello.incarnation = 1;
    hello.attempt = 1;
    hello.listens = {"10.0.0." + std::to_string(node), 29400};
    hello.state = state(rank);
    on(node_event::FromDialler{link, hello});
  }
  void ping(LinkId link, std::int64_t stamp, std::int64_t echo) {
    on(node_event::FromDialler{link, Ping{.stamp = stamp, .echo = echo, .realtime_ns = 0, .installed = rounds_[link]}});
  }

  Time time_{seconds(1000)};
  std::optional<Coordinator> coordinator_{
      std::in_place, settings(), Authority{.term = 2, .elected = true, .known = state(1), .roster = {}}, Now{time_, 0}};
  std::map<LinkId, std::vector<Pong>> pongs_;
  std::map<LinkId, RoundId> rounds_;
  std::vector<std::pair<LinkId, StopAndSave>> saves_;
  int exit_code_ = -1;
};

TEST_F(ElectedCoordinator, EarlyPingsAreAnsweredAgainAfterAMajority) {
  join(kSelfNode, 2, 1);
  join(kOtherNode, 3, 2);
  time_ += milliseconds(400);
  on(node_event::Tick{});
  ASSERT_TRUE(rounds_.contains(kSelfNode));

  ping(kSelfNode, 11, 0);
  ASSERT_EQ(pongs_[kSelfNode].size(), 1u);
  EXPECT_EQ(pongs_[kSelfNode][0].grant_ns, 0) << "no other node has answered in this term";
  ping(kOtherNode, 21, 0);
  EXPECT_EQ(pongs_[kOtherNode].at(0).grant_ns, 0);

  ping(kOtherNode, 22, pongs_[kOtherNode][0].stamp);
  EXPECT_GT(pongs_[kOtherNode].at(1).grant_ns, 0);
  ASSERT_EQ(pongs_[kSelfNode].size(), 2u);
  EXPECT_EQ(pongs_[kSelfNode][1].echo, 11);
  EXPECT_GT(pongs_[kSelfNode][1].grant_ns, 0);

  ping(kOtherNode, 23, pongs_[kOtherNode][1].stamp);
  EXPECT_EQ(pongs_[kSelfNode].size(), 2u) << "once is enough";
}

// The coordinator must report a commit to the successors immediately. The answer to the next ping arrives up to two fifths of
// a lease later. Until then, a successor also needs a majority of the previous round. Suppose the round has grown from two
// nodes to three. If the coordinator were lost before that answer, no successor could have a majority of the previous round.
TEST_F(ElectedCoordinator, SuccessorIsInformedOfACommitImmediately) {
  join(kSelfNode, 2, 1);
  join(kOtherNode, 3, 2);
  time_ += milliseconds(400);
  on(node_event::Tick{});
  ASSERT_TRUE(rounds_.contains(kOtherNode));

  ping(kOtherNode, 21, 0);
  ping(kSelfNode, 11, 0);  // starts a round with both nodes
  const RoundId round = rounds_[kOtherNode];
  ping(kOtherNode, 22, 0);
  EXPECT_EQ(pongs_[kOtherNode].back().committed, RoundId{}) << "of the three of the round before, one has installed it";
  ping(kSelfNode, 12, 0);
  EXPECT_EQ(pongs_[kOtherNode].back().committed, round);
  EXPECT_EQ(pongs_[kOtherNode].back().echo, 22) << "it has not sent another ping";
}

// The departure of a node commits the round. Regression: the next round still had a rank for the departed node.
TEST_F(ElectedCoordinator, LeavingNodeHasNoRankInTheNextRound) {
  join(kSelfNode, 2, 1);
  join(kOtherNode, 3, 2);
  ping(kSelfNode, 11, 0);
  time_ += milliseconds(400);
  on(node_event::Tick{});
  EXPECT_EQ(rounds_[kSelfNode], (RoundId{2, 1}));
  on(node_event::FromDialler{kOtherNode, Leave{"a signal"}});
  EXPECT_EQ(rounds_[kSelfNode], (RoundId{2, 1})) << "one of at least two nodes is connected";
  join(kFailed, 1, 0);
  ping(kFailed, 31, 0);
  time_ += milliseconds(400);
  on(node_event::Tick{});
  EXPECT_EQ(rounds_[kSelfNode], (RoundId{2, 2}));
  EXPECT_EQ(rounds_[kFailed], (RoundId{2, 2}));
}

TEST_F(ElectedCoordinator, OtherProtocolVersionIsRefusedWithTheReason) {
  on(node_event::LinkOpened{kOtherNode});
  Hello hello;
  hello.node = {3};
  hello.protocol = kProtocolVersion + 1;
  hello.state = state(2);
  std::optional<Refused> refused;
  for (const CoordinatorAction& action : coordinator_->on(node_event::FromDialler{kOtherNode, hello}, {time_, 0})) {
    const auto* send = std::get_if<node_action::ToDialler>(&action);
    if (send != nullptr && std::holds_alternative<Refused>(send->message)) refused = std::get<Refused>(send->message);
  }
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->reason, Refusal::kVersion);
}

// A node repeats the report of a failure that the previous coordinator has already counted. The failure must not be counted
// again.
TEST_F(ElectedCoordinator, FailureInTheBudgetIsNotCountedAgain) {
  for (const bool judged : {false, true}) {
    coordinator_.emplace(settings(), Authority{.term = 2, .elected = true, .known = state(1), .roster = {}, .judged = judged},
                         Now{time_, 0});
    rounds_.clear();
    exit_code_ = -1;
    join(kSelfNode, 2, 1);
    join(kOtherNode, 3, 2);
    join(kFailed, 1, 0);
    FailureReport again;
    again.round = {1, 1};
    on(node_event::FromDialler{kFailed, again});
    for (const LinkId link : {kSelfNode, kOtherNode, kFailed}) ping(link, 11, 0);
    time_ += milliseconds(500);
    on(node_event::Tick{});
    EXPECT_EQ(exit_code_, judged ? -1 : 2);
    EXPECT_EQ(rounds_[kFailed], (judged ? RoundId{2, 2} : RoundId{2, 1}));
  }
}

// The previous coordinator is lost during the last save, or before it has requested that save. The next coordinator must
// request the save.
TEST_F(ElectedCoordinator, SuccessorSavesHeldState) {
  join(kSelfNode, 2, 1);
  join(kOtherNode, 3, 2);
  join(kFailed, 1, 0);
  FailureReport late;
  late.round = {1, 1};
  late.failed.cause = Cause::kLateUsage;
  late.others_stay = true;
  on(node_event::FromDialler{kFailed, late});
  for (const LinkId link : {kSelfNode, kOtherNode, kFailed}) ping(link, 11, 0);
  time_ += milliseconds(500);
  on(node_event::Tick{});
  ASSERT_EQ(saves_.size(), 1u);
  EXPECT_TRUE(saves_[0].second.held);
  // This node has no waiting workers whose state it could save.
  on(node_event::FromDialler{kFailed, Stopped{.round = saves_[0].second.round}});
  ASSERT_EQ(saves_.size(), 2u);
  EXPECT_EQ(saves_[1].first, kSelfNode);
  on(node_event::FromDialler{kSelfNode, Stopped{.round = saves_[1].second.round, .saved = true}});
  EXPECT_EQ(exit_code_, 85);
}

}  // namespace
}  // namespace ddprun::rendezvous
