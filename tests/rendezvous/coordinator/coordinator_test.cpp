// A coordinator's grants and the times of its answers, in schedules in which the simulator would not notice a delay.
#include "rendezvous/coordinator/coordinator.hpp"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr LinkId kOwnNode = 1;
constexpr LinkId kOtherNode = 2;
constexpr LinkId kFailed = 3;

// Three nodes took part in round 1 of term 1. Its coordinator is gone, and node 2 was elected with node 3's vote.
class Elected : public testing::Test {
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
    for (CoordinatorAction& action : coordinator_.on(event, {time_, 0})) {
      const auto* send = std::get_if<coordinator_action::Send>(&action);
      if (send == nullptr) continue;
      if (const auto* pong = std::get_if<Pong>(&send->message)) pongs_[send->link].push_back(*pong);
      if (const auto* release = std::get_if<Release>(&send->message)) rounds_[send->link] = release->id;
      if (const auto* save = std::get_if<StopAndSave>(&send->message)) saves_.emplace_back(send->link, *save);
      if (const auto* ending = std::get_if<Conclude>(&send->message)) exit_code_ = ending->ending.exit_code;
    }
  }
  void join(LinkId link, std::uint8_t node, std::int32_t rank) {
    on(coordinator_event::Opened{link});
    Hello hello;
    hello.node = {node};
    hello.incarnation = 1;
    hello.attempt = 1;
    hello.listens = {"10.0.0." + std::to_string(node), 29400};
    hello.state = state(rank);
    on(coordinator_event::Heard{link, hello});
  }
  void ping(LinkId link, std::int64_t stamp, std::int64_t echo) {
    on(coordinator_event::Heard{link, Ping{.stamp = stamp, .echo = echo, .realtime_ns = 0, .installed = rounds_[link]}});
  }

  Time time_{seconds(1000)};
  Coordinator coordinator_{settings(), Authority{.term = 2, .elected = true, .known = state(1), .roster = {}}, {time_, 0}};
  std::map<LinkId, std::vector<Pong>> pongs_;
  std::map<LinkId, RoundId> rounds_;
  std::vector<std::pair<LinkId, StopAndSave>> saves_;
  int exit_code_ = -1;
};

TEST_F(Elected, WhoAskedBeforeAMajorityHadAnsweredIsAnsweredAgain) {
  join(kOwnNode, 2, 1);
  join(kOtherNode, 3, 2);
  time_ += milliseconds(400);
  on(coordinator_event::Tick{});
  ASSERT_TRUE(rounds_.contains(kOwnNode));

  ping(kOwnNode, 11, 0);
  ASSERT_EQ(pongs_[kOwnNode].size(), 1u);
  EXPECT_EQ(pongs_[kOwnNode][0].grant_ns, 0) << "nobody else has answered in this term";
  ping(kOtherNode, 21, 0);
  EXPECT_EQ(pongs_[kOtherNode].at(0).grant_ns, 0);

  ping(kOtherNode, 22, pongs_[kOtherNode][0].stamp);
  EXPECT_GT(pongs_[kOtherNode].at(1).grant_ns, 0);
  ASSERT_EQ(pongs_[kOwnNode].size(), 2u);
  EXPECT_EQ(pongs_[kOwnNode][1].echo, 11);
  EXPECT_GT(pongs_[kOwnNode][1].grant_ns, 0);

  ping(kOtherNode, 23, pongs_[kOtherNode][1].stamp);
  EXPECT_EQ(pongs_[kOwnNode].size(), 2u) << "once is enough";
}

// Until its next ping, two fifths of a lease later, a successor would not know that the previous round no longer counts. If
// this coordinator were lost in between, a round that has grown from two nodes to three would have no majority left.
TEST_F(Elected, ASuccessorHearsAtOnceThatTheRoundIsCommitted) {
  join(kOwnNode, 2, 1);
  join(kOtherNode, 3, 2);
  time_ += milliseconds(400);
  on(coordinator_event::Tick{});
  ASSERT_TRUE(rounds_.contains(kOtherNode));

  ping(kOtherNode, 21, 0);
  ping(kOwnNode, 11, 0);  // both are released into a round of two nodes
  const RoundId round = rounds_[kOtherNode];
  ping(kOtherNode, 22, 0);
  EXPECT_EQ(pongs_[kOtherNode].back().committed, RoundId{}) << "of the three of the round before, one has installed it";
  ping(kOwnNode, 12, 0);
  EXPECT_EQ(pongs_[kOtherNode].back().committed, round);
  EXPECT_EQ(pongs_[kOtherNode].back().echo, 22) << "it has not asked again";
}

// Its leave committed the round, and the next round was released with a rank for this node, which stayed without a node.
TEST_F(Elected, WhoLeavesHasNoSeatInTheRoundThatItsLeaveAllows) {
  join(kOwnNode, 2, 1);
  join(kOtherNode, 3, 2);
  ping(kOwnNode, 11, 0);
  time_ += milliseconds(400);
  on(coordinator_event::Tick{});
  EXPECT_EQ(rounds_[kOwnNode], (RoundId{2, 1}));
  on(coordinator_event::Heard{kOtherNode, Leave{"a signal"}});
  EXPECT_EQ(rounds_[kOwnNode], (RoundId{2, 1})) << "one of at least two nodes is here";
  join(kFailed, 1, 0);
  ping(kFailed, 31, 0);
  time_ += milliseconds(400);
  on(coordinator_event::Tick{});
  EXPECT_EQ(rounds_[kOwnNode], (RoundId{2, 2}));
  EXPECT_EQ(rounds_[kFailed], (RoundId{2, 2}));
}

TEST_F(Elected, ANodeOfAnotherProtocolIsToldSoAndNotTakenIn) {
  on(coordinator_event::Opened{kOtherNode});
  Hello hello;
  hello.node = {3};
  hello.protocol = kProtocolVersion + 1;
  hello.state = state(2);
  std::optional<Refused> refused;
  for (const CoordinatorAction& action : coordinator_.on(coordinator_event::Heard{kOtherNode, hello}, {time_, 0})) {
    const auto* send = std::get_if<coordinator_action::Send>(&action);
    if (send != nullptr && std::holds_alternative<Refused>(send->message)) refused = std::get<Refused>(send->message);
  }
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->reason, Refusal::kVersion);
}

// A node repeats a failure that the previous coordinator had counted.
TEST_F(Elected, AFailureThatTheBudgetIncludesIsNotCountedAgain) {
  for (const bool judged : {false, true}) {
    coordinator_ = Coordinator(
        settings(), Authority{.term = 2, .elected = true, .known = state(1), .roster = {}, .judged = judged}, {time_, 0});
    rounds_.clear();
    exit_code_ = -1;
    join(kOwnNode, 2, 1);
    join(kOtherNode, 3, 2);
    join(kFailed, 1, 0);
    FailureReport again;
    again.round = {1, 1};
    on(coordinator_event::Heard{kFailed, again});
    for (const LinkId link : {kOwnNode, kOtherNode, kFailed}) ping(link, 11, 0);
    time_ += milliseconds(500);
    on(coordinator_event::Tick{});
    EXPECT_EQ(exit_code_, judged ? -1 : 2);
    EXPECT_EQ(rounds_[kFailed], (judged ? RoundId{2, 2} : RoundId{2, 1}));
  }
}

// The previous coordinator was lost during the last save, or before it requested that save.
TEST_F(Elected, WhatIsHeldIsSavedAlsoUnderASuccessor) {
  join(kOwnNode, 2, 1);
  join(kOtherNode, 3, 2);
  join(kFailed, 1, 0);
  FailureReport late;
  late.round = {1, 1};
  late.failed.cause = Cause::kLateUsage;
  late.others_stay = true;
  on(coordinator_event::Heard{kFailed, late});
  for (const LinkId link : {kOwnNode, kOtherNode, kFailed}) ping(link, 11, 0);
  time_ += milliseconds(500);
  on(coordinator_event::Tick{});
  ASSERT_EQ(saves_.size(), 1u);
  EXPECT_TRUE(saves_[0].second.held);
  on(coordinator_event::Heard{kFailed, Stopped{.round = saves_[0].second.round}});  // no worker waits there
  ASSERT_EQ(saves_.size(), 2u);
  EXPECT_EQ(saves_[1].first, kOwnNode);
  on(coordinator_event::Heard{kOwnNode, Stopped{.round = saves_[1].second.round, .saved = true}});
  EXPECT_EQ(exit_code_, 85);
}

}  // namespace
}  // namespace ddprun::rendezvous
