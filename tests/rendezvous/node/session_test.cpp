// Tests sessions: each message must arrive exactly once and in order, even if connections are lost.
#include "rendezvous/node/session.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "rendezvous/node/leader_session.hpp"
#include "rendezvous/node/member_sessions.hpp"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;

FromMember store_query(std::uint64_t id) {
  StoreQuery store_query;
  store_query.request.id = id;
  return store_query;
}
FromCoordinator answer(std::uint64_t id) {
  StoreAnswer answer;
  answer.reply.id = id;
  return answer;
}

// Both ends of a session, and the messages in flight between the two.
struct BothEnds {
  SessionEnd<FromMember, FromCoordinator> member;
  SessionEnd<FromCoordinator, FromMember> coordinator;
  std::deque<FromMember> up;
  std::deque<FromCoordinator> down;
  std::vector<std::uint64_t> received_up;
  std::vector<std::uint64_t> received_down;

  void send_up(FromMember message) {
    member.send(message);
    up.push_back(std::move(message));
  }
  void send_down(FromCoordinator message) {
    coordinator.send(message);
    down.push_back(std::move(message));
  }
  void deliver_up() {
    if (up.empty()) return;
    if (coordinator.receive(up.front())) {
      if (const auto* one = std::get_if<StoreQuery>(&up.front())) received_up.push_back(one->request.id);
      if (std::holds_alternative<Ping>(up.front())) send_down(Pong{});
    }
    up.pop_front();
  }
  void deliver_down() {
    if (down.empty()) return;
    if (member.receive(down.front())) {
      if (const auto* one = std::get_if<StoreAnswer>(&down.front())) received_down.push_back(one->reply.id);
    }
    down.pop_front();
  }
  // Drops all messages in flight. Then both ends exchange their counts and send the missing messages again. Returns false if
  // the session cannot be resumed.
  bool reset() {
    up.clear();
    down.clear();
    if (!coordinator.resume(member.received()) || !member.resume(coordinator.received())) return false;
    for (const FromCoordinator& missed : coordinator.missing()) down.push_back(missed);
    for (const FromMember& missed : member.missing()) up.push_back(missed);
    return true;
  }
};

TEST(Session, EachMessageArrivesOnceAndInOrder) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    BothEnds ends;
    std::uint64_t queries_sent = 0;
    std::uint64_t answered = 0;
    for (int i = 0; i < 300; ++i) {
      switch (random() % 8) {
        case 0:
        case 1:
          ends.send_up(store_query(queries_sent++));
          break;
        case 2:
          ends.send_down(answer(answered++));
          break;
        case 3:
          ends.send_up(Ping{});
          break;
        case 4:
        case 5:
          ends.deliver_up();
          break;
        case 6:
          ends.deliver_down();
          break;
        default:
          if (random() % 4 == 0) {
            ASSERT_TRUE(ends.reset()) << "seed " << seed;
          }
      }
    }
    ASSERT_TRUE(ends.reset());
    while (!ends.up.empty() || !ends.down.empty()) {
      ends.deliver_up();
      ends.deliver_down();
    }
    ASSERT_EQ(ends.received_up.size(), queries_sent) << "seed " << seed;
    ASSERT_EQ(ends.received_down.size(), answered) << "seed " << seed;
    for (std::uint64_t id = 0; id < queries_sent; ++id) ASSERT_EQ(ends.received_up[id], id) << "seed " << seed;
    for (std::uint64_t id = 0; id < answered; ++id) ASSERT_EQ(ends.received_down[id], id) << "seed " << seed;
  }
}

TEST(Session, DropsConfirmedMessages) {
  BothEnds ends;
  for (std::uint64_t id = 0; id < 10; ++id) ends.send_up(store_query(id));
  for (int i = 0; i < 10; ++i) ends.deliver_up();
  EXPECT_EQ(ends.member.missing().size(), 10u);
  ends.send_up(Ping{});
  ends.deliver_up();
  ends.deliver_down();
  EXPECT_TRUE(ends.member.missing().empty());
}

// A value in the store may have up to 16 MiB. A message with a large value is confirmed before the next ping, so that the
// sender can free its copy.
TEST(Session, ConfirmsLargeMessagesImmediately) {
  BothEnds ends;
  StoreQuery large;
  large.request.value = std::string(2u << 20, 'v');
  ends.send_up(large);
  ends.deliver_up();
  const auto received = ends.coordinator.confirmation();
  ASSERT_TRUE(received.has_value());
  EXPECT_FALSE(ends.member.receive(FromCoordinator(*received)));
  EXPECT_TRUE(ends.member.missing().empty());
  EXPECT_FALSE(ends.coordinator.confirmation().has_value());
}

// A user's query may have up to 4 KiB. So the size of its text must count toward the limit on kept messages.
TEST(Session, QueriesCountWithTheirText) {
  const std::string text(kMaxQueryBytes, 'q');
  EXPECT_GE(approximate_size(FromMember(ClusterQuery{.text = text})), text.size());
  EXPECT_GE(approximate_size(FromCoordinator(NodeQuery{.text = text})), text.size());
  BothEnds ends;
  const auto queries = static_cast<int>((1u << 20) / text.size());
  for (int i = 0; i < queries; ++i) ends.send_down(NodeQuery{.text = text});
  for (int i = 0; i < queries; ++i) ends.deliver_down();
  EXPECT_TRUE(ends.member.confirmation().has_value());  // limits the coordinator's kept queries to 1 MiB
}

TEST(Session, RefusesAnImpossibleCount) {
  BothEnds ends;
  ends.send_up(store_query(0));
  EXPECT_FALSE(ends.member.resume(2));  // the other end claims to have received more messages than this end has sent
  ends.deliver_up();
  ends.member.receive(FromCoordinator(Received{1}));
  EXPECT_FALSE(ends.member.resume(0));  // this end no longer has copies of the messages that the other end has not received
}

// ---- Sessions of a coordinator ----

class Resumption : public testing::Test {
 protected:
  Resumption() {
    sessions_.accept(5);
    sessions_.receive(5, hello());
    sessions_.begin(5);
  }
  static Hello hello() {
    Hello hello;
    hello.node = {7};
    hello.incarnation = 3;
    hello.attempt = 2;
    return hello;
  }
  static Resume back() { return {.session = {.node = {7}, .incarnation = 3, .attempt = 2}, .received = 0}; }

  Time time_{seconds(1000)};
  MemberSessions sessions_{Rules{}, seconds(5)};
};

TEST_F(Resumption, IsAcceptedFromTheSameProcess) {
  ASSERT_TRUE(sessions_.lost(5, time_));
  FromCoordinator release = Release{};
  EXPECT_FALSE(sessions_.send(5, release).has_value());
  EXPECT_FALSE(sessions_.take_expired(time_ + milliseconds(999)).has_value());
  Resume other = back();
  other.session.incarnation = 4;
  EXPECT_FALSE(sessions_.resume(6, other).has_value());
  const auto returned = sessions_.resume(6, back());
  ASSERT_TRUE(returned.has_value());
  EXPECT_EQ(returned->link, 5u);
  ASSERT_EQ(returned->missing.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<Release>(returned->missing.front()));
  EXPECT_EQ(sessions_.session_link(6), 5u);
  EXPECT_EQ(sessions_.carrier_of(5), 6u);
  EXPECT_EQ(sessions_.send(5, release), std::optional<LinkId>(6));
  EXPECT_FALSE(sessions_.take_expired(time_ + seconds(9)).has_value());
}

TEST_F(Resumption, ExpiresAfterItsTimeout) {
  ASSERT_TRUE(sessions_.lost(5, time_));
  EXPECT_EQ(sessions_.next_deadline(), time_ + seconds(1));
  EXPECT_EQ(sessions_.take_expired(time_ + seconds(1)), std::optional<LinkId>(5));
  sessions_.end(5);
  EXPECT_FALSE(sessions_.resume(6, back()).has_value());
}

TEST_F(Resumption, ReplacesAConnectionBrokenOnOneSide) {
  const auto returned = sessions_.resume(6, back());
  ASSERT_TRUE(returned.has_value());
  EXPECT_EQ(returned->replaced, 5u);
  ASSERT_TRUE(sessions_.lost(5, time_));
  EXPECT_TRUE(sessions_.resume(8, back()).has_value());
  EXPECT_EQ(sessions_.session_link(6), 6u);
}

// A correct member never sends Resume over a connection that already carries a session. The coordinator must refuse it.
TEST_F(Resumption, RefusesAConnectionThatCarriesASession) {
  EXPECT_FALSE(sessions_.resume(5, back()).has_value());
  sessions_.accept(6);
  Hello second = hello();
  second.attempt = 3;
  sessions_.receive(6, second);
  sessions_.begin(6);
  EXPECT_FALSE(sessions_.resume(6, back()).has_value());
  EXPECT_EQ(sessions_.links(), (std::vector<LinkId>{5, 6}));
  sessions_.end(5);
  sessions_.end(6);
  EXPECT_FALSE(sessions_.resume(7, back()).has_value());
}

TEST_F(Resumption, IsBoundedByTheLease) {
  MemberSessions quick{Rules{}, milliseconds(2000)};
  quick.accept(5);
  quick.receive(5, hello());
  quick.begin(5);
  ASSERT_TRUE(quick.lost(5, time_));
  EXPECT_EQ(quick.next_deadline(), time_ + milliseconds(400));
}

// A node that has given up its record gets a new node id, so for the coordinator it is a different node.
TEST(LeaderSessionTest, UsesTheNewIdentity) {
  LeaderSession session(Rules{}, NodeId{1}, /*incarnation=*/9);
  session.sent_hello(kDialled | 1, /*attempt=*/1);
  session.begin(kDialled | 1);
  EXPECT_EQ(session.resume().session.node, NodeId{1});
  session.become(NodeId{2});
  EXPECT_FALSE(session.exists());
  session.sent_hello(kDialled | 2, /*attempt=*/1);
  session.begin(kDialled | 2);
  EXPECT_EQ(session.resume().session.node, NodeId{2});
}

}  // namespace
}  // namespace ddprun::rendezvous
