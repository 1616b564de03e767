// Sessions: each message arrives once and in order, for any loss of connections.
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

FromMember ask(std::uint64_t id) {
  StoreAsk ask;
  ask.request.id = id;
  return ask;
}
FromCoordinator answer(std::uint64_t id) {
  StoreAnswer answer;
  answer.reply.id = id;
  return answer;
}

// Both ends of one session, and the messages in flight between them.
struct BothEnds {
  SessionEnd<FromMember, FromCoordinator> member;
  SessionEnd<FromCoordinator, FromMember> coordinator;
  std::deque<FromMember> up;
  std::deque<FromCoordinator> down;
  std::vector<std::uint64_t> heard_up;
  std::vector<std::uint64_t> heard_down;

  void say_up(FromMember message) {
    member.say(message);
    up.push_back(std::move(message));
  }
  void say_down(FromCoordinator message) {
    coordinator.say(message);
    down.push_back(std::move(message));
  }
  void deliver_up() {
    if (up.empty()) return;
    if (coordinator.hear(up.front())) {
      if (const auto* one = std::get_if<StoreAsk>(&up.front())) heard_up.push_back(one->request.id);
      if (std::holds_alternative<Ping>(up.front())) say_down(Pong{});
    }
    up.pop_front();
  }
  void deliver_down() {
    if (down.empty()) return;
    if (member.hear(down.front())) {
      if (const auto* one = std::get_if<StoreAnswer>(&down.front())) heard_down.push_back(one->reply.id);
    }
    down.pop_front();
  }
  // Messages in flight are lost; both ends exchange their counts.
  bool reset() {
    up.clear();
    down.clear();
    if (!coordinator.resume(member.received()) || !member.resume(coordinator.received())) return false;
    for (const FromCoordinator& missed : coordinator.missing()) down.push_back(missed);
    for (const FromMember& missed : member.missing()) up.push_back(missed);
    return true;
  }
};

TEST(Session, EachMessageComesOnceAndInOrderWhateverIsLost) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    BothEnds ends;
    std::uint64_t asked = 0;
    std::uint64_t answered = 0;
    for (int i = 0; i < 300; ++i) {
      switch (random() % 8) {
        case 0:
        case 1:
          ends.say_up(ask(asked++));
          break;
        case 2:
          ends.say_down(answer(answered++));
          break;
        case 3:
          ends.say_up(Ping{});
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
    ASSERT_EQ(ends.heard_up.size(), asked) << "seed " << seed;
    ASSERT_EQ(ends.heard_down.size(), answered) << "seed " << seed;
    for (std::uint64_t id = 0; id < asked; ++id) ASSERT_EQ(ends.heard_up[id], id) << "seed " << seed;
    for (std::uint64_t id = 0; id < answered; ++id) ASSERT_EQ(ends.heard_down[id], id) << "seed " << seed;
  }
}

TEST(Session, KeepsNothingThatWasHad) {
  BothEnds ends;
  for (std::uint64_t id = 0; id < 10; ++id) ends.say_up(ask(id));
  for (int i = 0; i < 10; ++i) ends.deliver_up();
  EXPECT_EQ(ends.member.missing().size(), 10u);
  ends.say_up(Ping{});
  ends.deliver_up();
  ends.deliver_down();
  EXPECT_TRUE(ends.member.missing().empty());
}

// Values of the store have up to 16 MiB: they are confirmed before the next ping, so that the other side can drop them.
TEST(Session, ConfirmsLargeMessagesAtOnce) {
  BothEnds ends;
  StoreAsk large;
  large.request.value = std::string(2u << 20, 'v');
  ends.say_up(large);
  ends.deliver_up();
  const auto received = ends.coordinator.confirmation();
  ASSERT_TRUE(received.has_value());
  EXPECT_FALSE(ends.member.hear(FromCoordinator(*received)));
  EXPECT_TRUE(ends.member.missing().empty());
  EXPECT_FALSE(ends.coordinator.confirmation().has_value());
}

// A user's query has up to 4 KiB, so its real size counts.
TEST(Session, QuestionsWeighAsMuchAsTheirText) {
  const std::string text(kMaxQuestionBytes, 'q');
  EXPECT_GE(weight_of(FromMember(JobQuestion{.text = text})), text.size());
  EXPECT_GE(weight_of(FromCoordinator(NodeQuestion{.text = text})), text.size());
  BothEnds ends;
  const auto questions = static_cast<int>((1u << 20) / text.size());
  for (int i = 0; i < questions; ++i) ends.say_down(NodeQuestion{.text = text});
  for (int i = 0; i < questions; ++i) ends.deliver_down();
  EXPECT_TRUE(ends.member.confirmation().has_value());  // so that the coordinator keeps at most 1 MiB of them
}

TEST(Session, GoesOnFromNowhereElse) {
  BothEnds ends;
  ends.say_up(ask(0));
  EXPECT_FALSE(ends.member.resume(2));  // more than was sent
  ends.deliver_up();
  ends.member.hear(FromCoordinator(Received{1}));
  EXPECT_FALSE(ends.member.resume(0));  // the missing messages are no longer kept
}

// ---- of a coordinator ----

class Resumption : public testing::Test {
 protected:
  Resumption() {
    sessions_.accept(5);
    sessions_.hear(5, hello());
    sessions_.begin(5);
  }
  static Hello hello() {
    Hello hello;
    hello.node = {7};
    hello.incarnation = 3;
    hello.attempt = 2;
    return hello;
  }
  static Resume back() { return {.node = {7}, .incarnation = 3, .attempt = 2, .received = 0}; }

  Time time_{seconds(1000)};
  MemberSessions sessions_{Rules{}, seconds(5)};
};

TEST_F(Resumption, WaitsAMomentForTheSameProcess) {
  ASSERT_TRUE(sessions_.lost(5, time_));
  FromCoordinator release = Release{};
  EXPECT_FALSE(sessions_.say(5, release).has_value());
  EXPECT_FALSE(sessions_.take_over(time_ + milliseconds(999)).has_value());
  Resume other = back();
  other.incarnation = 4;
  EXPECT_FALSE(sessions_.resume(6, other).has_value());
  const auto returned = sessions_.resume(6, back());
  ASSERT_TRUE(returned.has_value());
  EXPECT_EQ(returned->link, 5u);
  ASSERT_EQ(returned->missing.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<Release>(returned->missing.front()));
  EXPECT_EQ(sessions_.link_behind(6), 5u);
  EXPECT_EQ(sessions_.carrier_of(5), 6u);
  EXPECT_EQ(sessions_.say(5, release), std::optional<LinkId>(6));
  EXPECT_FALSE(sessions_.take_over(time_ + seconds(9)).has_value());
}

TEST_F(Resumption, IsOverAfterThatMoment) {
  ASSERT_TRUE(sessions_.lost(5, time_));
  EXPECT_EQ(sessions_.next_deadline(), time_ + seconds(1));
  EXPECT_EQ(sessions_.take_over(time_ + seconds(1)), std::optional<LinkId>(5));
  sessions_.end(5);
  EXPECT_FALSE(sessions_.resume(6, back()).has_value());
}

TEST_F(Resumption, NoticesAConnectionThatBrokeOnTheOtherSideOnly) {
  const auto returned = sessions_.resume(6, back());
  ASSERT_TRUE(returned.has_value());
  EXPECT_EQ(returned->replaced, 5u);
  ASSERT_TRUE(sessions_.lost(5, time_));
  EXPECT_TRUE(sessions_.resume(8, back()).has_value());
  EXPECT_EQ(sessions_.link_behind(6), 6u);
}

// Only a broken or hostile member requests this.
TEST_F(Resumption, NeverTakesAConnectionThatCarriesASession) {
  EXPECT_FALSE(sessions_.resume(5, back()).has_value());
  sessions_.accept(6);
  Hello second = hello();
  second.attempt = 3;
  sessions_.hear(6, second);
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
  quick.hear(5, hello());
  quick.begin(5);
  ASSERT_TRUE(quick.lost(5, time_));
  EXPECT_EQ(quick.next_deadline(), time_ + milliseconds(400));
}

// A node that gave up its memory is another node for the coordinator.
TEST(LeaderSessionOfANode, IsNamedByTheIdentityThatItHasNow) {
  LeaderSession session(Rules{}, NodeId{1}, /*incarnation=*/9);
  session.said_hello(kDialled | 1, /*attempt=*/1);
  session.begin(kDialled | 1);
  EXPECT_EQ(session.resume().node, NodeId{1});
  session.become(NodeId{2});
  EXPECT_FALSE(session.exists());
  session.said_hello(kDialled | 2, /*attempt=*/1);
  session.begin(kDialled | 2);
  EXPECT_EQ(session.resume().node, NodeId{2});
}

}  // namespace
}  // namespace ddprun::rendezvous
