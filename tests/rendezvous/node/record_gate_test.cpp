// Tests which messages must wait until the node's record is on disk, and which must not wait.
#include "rendezvous/node/record_gate.hpp"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

constexpr LinkId kLeader = 7;
constexpr LinkId kMemberLink = 8;

Record record(std::uint64_t term, std::int64_t round = -1) {
  Record one;
  one.state.promised_term = term;
  if (round >= 0) one.state.current = Config{.id = {term, round}, .born = term, .nodes = 2, .rank = 0};
  return one;
}

class RecordGateTest : public testing::Test {
 protected:
  std::vector<NodeAction> remember(const Record& one) { return pass(member_action::Remember{one}); }
  template <class Action>
  std::vector<NodeAction> pass(Action action) {
    std::vector<NodeAction> actions;
    actions.emplace_back(std::move(action));
    return gate_.pass(std::move(actions));
  }
  template <class Message>
  std::vector<NodeAction> to_leader(Message message) {
    return pass(node_action::ToListener{kLeader, std::move(message)});
  }
  template <class Message>
  std::vector<NodeAction> to_member(Message message) {
    return pass(node_action::ToDialler{kMemberLink, std::move(message)});
  }

  RecordGate gate_{Rules{}, record(3, 4)};
};

TEST_F(RecordGateTest, VoteIsSentWhenWritten) {
  EXPECT_EQ(remember(record(5, 4)).size(), 1u);
  EXPECT_TRUE(to_leader(Vote{.term = 5, .promised_term = 5, .echo = 1}).empty());
  const auto now = gate_.written(true);
  ASSERT_EQ(now.size(), 1u);
  EXPECT_TRUE(std::get<Vote>(std::get<node_action::ToListener>(now.front()).message).granted());
  EXPECT_EQ(to_leader(Vote{.term = 5, .promised_term = 5, .echo = 1}).size(), 1u);
}

TEST_F(RecordGateTest, UnwrittenVoteIsDropped) {
  remember(record(5, 4));
  to_leader(Vote{.term = 5, .promised_term = 5, .echo = 1});
  // This message refuses a vote, so it need not wait for the record.
  to_leader(Vote{.term = 4, .promised_term = 5, .echo = 1});
  const auto now = gate_.written(false);
  ASSERT_EQ(now.size(), 1u);
  EXPECT_FALSE(std::get<Vote>(std::get<node_action::ToListener>(now.front()).message).granted());
}

TEST_F(RecordGateTest, VoteWaitsOnlyForItsOwnRecord) {
  remember(record(5, 4));
  to_leader(Vote{.term = 5, .promised_term = 5, .echo = 1});
  remember(record(6, 4));
  to_leader(Vote{.term = 6, .promised_term = 6, .echo = 1});
  EXPECT_EQ(gate_.written(true).size(), 1u);
  EXPECT_EQ(gate_.written(false).size(), 0u);
}

TEST_F(RecordGateTest, PingsReportOnlyWrittenState) {
  remember(record(3, 5));  // a new round; its term is already promised
  auto now = to_leader(Ping{.stamp = 9, .echo = 8, .realtime_ns = 0, .installed = {3, 5}});
  ASSERT_EQ(now.size(), 1u);
  Ping ping = std::get<Ping>(std::get<node_action::ToListener>(now.front()).message);
  EXPECT_EQ(ping.installed, (RoundId{3, 4}));
  EXPECT_EQ(ping.echo, 8);  // this message need not wait: the term was promised earlier, and that promise is on disk

  remember(record(4, 5));
  now = to_leader(Ping{.stamp = 10, .echo = 9, .realtime_ns = 0, .installed = {3, 5}});
  ping = std::get<Ping>(std::get<node_action::ToListener>(now.front()).message);
  EXPECT_EQ(ping.echo, 0);  // the promise of the new term is not on disk yet

  gate_.written(true);
  gate_.written(true);
  now = to_leader(Ping{.stamp = 11, .echo = 10, .realtime_ns = 0, .installed = {3, 5}});
  ping = std::get<Ping>(std::get<node_action::ToListener>(now.front()).message);
  EXPECT_EQ(ping.installed, (RoundId{3, 5}));
  EXPECT_EQ(ping.echo, 10);
}

TEST_F(RecordGateTest, PongsOvertakeWaitingReleases) {
  Record roster = record(3, 4);
  roster.roster.origin = {3, 5};
  remember(roster);
  EXPECT_TRUE(to_member(Release{.id = {3, 5}}).empty());
  // RoundOver waits, because the member must receive the release of this round first.
  EXPECT_TRUE(to_member(RoundOver{.round = {3, 5}}).empty());
  EXPECT_TRUE(pass(node_action::CloseLink{kMemberLink}).empty());
  EXPECT_TRUE(to_member(StoreAnswer{}).empty());  // StoreAnswer waits too, because messages of a session must keep their order
  EXPECT_EQ(to_member(Received{}).size(), 1u);
  const auto pong = to_member(Pong{.echo = 1, .stamp = 2, .realtime_ns = 0, .grant_ns = 5, .committed = {3, 5}});
  ASSERT_EQ(pong.size(), 1u);
  const Pong& sent = std::get<Pong>(std::get<node_action::ToDialler>(pong.front()).message);
  EXPECT_EQ(sent.grant_ns, 5);
  EXPECT_EQ(sent.committed, RoundId{});
  EXPECT_EQ(gate_.written(true).size(), 4u);
}

TEST_F(RecordGateTest, ResumeDoesNotWaitForWrites) {
  remember(record(6, 4));
  const auto resume = pass(node_action::ToListener{kResume | kLeader, Resume{}});
  EXPECT_EQ(resume.size(), 1u);
  EXPECT_EQ(to_member(Resumed{}).size(), 1u);
  EXPECT_TRUE(to_member(Release{}).empty());
  EXPECT_TRUE(to_member(RoundOver{}).empty());
  EXPECT_EQ(gate_.written(true).size(), 2u);
}

TEST_F(RecordGateTest, SessionMessagesStayInOrder) {
  remember(record(6, 4));
  to_leader(Vote{.term = 6, .promised_term = 6, .echo = 1});
  EXPECT_TRUE(to_leader(Ready{}).empty());
  EXPECT_TRUE(to_leader(StoreQuery{}).empty());
  EXPECT_EQ(to_leader(Received{}).size(), 1u);
  const auto now = gate_.written(true);
  ASSERT_EQ(now.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<StoreQuery>(std::get<node_action::ToListener>(now.back()).message));
}

TEST_F(RecordGateTest, LeaderOfAnUnwrittenTermSendsNothing) {
  remember(record(6, 4));
  EXPECT_TRUE(to_member(Welcome{}).empty());
  EXPECT_TRUE(to_member(Pong{}).empty());
  EXPECT_EQ(gate_.written(true).size(), 2u);
}

TEST_F(RecordGateTest, HeldStartIsExtendedAndCanceled) {
  remember(record(6, 4));
  pass(member_action::StartWorkers{.release = {}, .until = Time(nanoseconds(5))});
  EXPECT_TRUE(pass(member_action::ExtendWorkerLease{Time(nanoseconds(9))}).empty());
  auto now = gate_.written(true);
  ASSERT_EQ(now.size(), 1u);
  EXPECT_EQ(std::get<member_action::StartWorkers>(now.front()).until, Time(nanoseconds(9)));

  remember(record(7, 4));
  pass(member_action::StartWorkers{});
  EXPECT_TRUE(pass(member_action::StopWorkers{}).empty());
  EXPECT_TRUE(gate_.take_unstarted());
  EXPECT_FALSE(gate_.take_unstarted());
  // The workers were never started, so another StopWorkers has no effect.
  EXPECT_TRUE(pass(member_action::StopWorkers{}).empty());
  EXPECT_FALSE(gate_.take_unstarted());
  EXPECT_TRUE(gate_.written(true).empty());
  EXPECT_EQ(pass(member_action::StartWorkers{}).size(), 1u);
  EXPECT_EQ(pass(member_action::StopWorkers{}).size(), 1u);
}

TEST_F(RecordGateTest, OneEventIsRecordedAsAWhole) {
  std::vector<NodeAction> actions;
  Record roster = record(3, 4);
  roster.roster.origin = {3, 5};
  actions.emplace_back(member_action::Remember{roster});
  actions.emplace_back(node_action::ToDialler{kMemberLink, Release{.id = {3, 5}}});
  actions.emplace_back(member_action::Remember{record(3, 5)});
  const auto now = gate_.pass(std::move(actions));
  ASSERT_EQ(now.size(), 1u);
  EXPECT_EQ(std::get<member_action::Remember>(now.front()).record.state.current.id, (RoundId{3, 5}));
  EXPECT_EQ(gate_.written(true).size(), 1u);
}

TEST_F(RecordGateTest, ClosedLinkDropsItsGreeting) {
  remember(record(5, 4));
  EXPECT_TRUE(to_leader(Hello{}).empty());
  EXPECT_EQ(pass(node_action::CloseLink{kLeader}).size(), 1u);
  EXPECT_TRUE(gate_.written(true).empty());
}

TEST_F(RecordGateTest, FinishReleasesAllButVotes) {
  remember(record(5, 4));
  to_leader(Vote{.term = 5, .promised_term = 5, .echo = 1});
  to_member(RoundOver{});
  const auto now = pass(node_action::Finish{});
  ASSERT_EQ(now.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<node_action::ToDialler>(now.front()));
  EXPECT_TRUE(std::holds_alternative<node_action::Finish>(now.back()));
}

}  // namespace
}  // namespace ddprun::rendezvous
