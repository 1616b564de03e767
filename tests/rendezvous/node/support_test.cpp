// Which rounds a candidate's electors support if some of them lack the newest one. The previous round counts alone as soon as
// so many of its nodes lack the newest round that it cannot have been committed, and not before.
#include "rendezvous/node/support.hpp"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

using Majority = Support::Majority;

const Config kBefore{.id = {1, 1}, .born = 1, .nodes = 3, .rank = 0};
const Config kNewest{.id = {1, 2}, .born = 1, .nodes = 5, .rank = 0};

// Node N has rank N in both rounds. The newest round has two more nodes, and too few of its nodes are ever connected.
class WhoLacksTheRound : public testing::Test {
 protected:
  void SetUp() override { support_.count_for(kNewest, before_, released_); }
  PersistentState lacks(std::int32_t rank) const {
    PersistentState state{.promised_term = 1, .current = before_};
    state.current.rank = rank;
    return state;
  }
  PersistentState has(std::int32_t rank) const {
    PersistentState state{.promised_term = 1, .current = kNewest, .previous = before_};
    state.current.rank = state.previous.rank = rank;
    return state;
  }
  static Hello hello(std::uint8_t node, PersistentState state) {
    Hello hello;
    hello.node = {1, node};
    hello.state = std::move(state);
    return hello;
  }
  Majority majority(const PersistentState& own) const { return support_.with({1, 0}, own); }

  Config before_ = kBefore;
  ReleasedRanks released_;
  Support support_{Rules{}};
};

TEST_F(WhoLacksTheRound, OneOfThreeLeavesTwoThatMayHaveCommittedIt) {
  const Hello one = hello(1, has(1));
  support_.add(1, one);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone);
}

TEST_F(WhoLacksTheRound, NobodyOfThoseWhoAreHere) {
  const Hello one = hello(1, has(1));
  support_.add(1, one);
  EXPECT_EQ(majority(has(0)), Majority::kNone);  // the other nodes of the newest round may lead it
}

TEST_F(WhoLacksTheRound, TwoOfThreeCannotHaveCommittedIt) {
  const Hello one = hello(1, lacks(1)), two = hello(2, has(2));
  support_.add(1, one);
  EXPECT_EQ(majority(lacks(0)), Majority::kOfPrevious);
  support_.add(2, two);
  EXPECT_EQ(majority(lacks(0)), Majority::kOfPrevious) << "whoever has it";
  EXPECT_EQ(majority(has(0)), Majority::kNone) << "the candidate has it as well";
}

TEST_F(WhoLacksTheRound, ItGoesOrInstallsIt) {
  const Hello one = hello(1, lacks(1)), two = hello(2, has(2));
  support_.add(1, one);
  support_.add(2, two);
  ASSERT_EQ(majority(lacks(0)), Majority::kOfPrevious);
  support_.remove(1, one.node);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone) << "it may install it, now that nobody hears of it";
  Hello later = hello(1, has(1));
  later.attempt = 2;
  support_.add(3, one);
  ASSERT_EQ(majority(lacks(0)), Majority::kOfPrevious);
  support_.add(4, later);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone);
}

// Nodes that report the same rank, one of them the candidate's own, count as one rank without the round.
TEST_F(WhoLacksTheRound, ASeatIsCountedOnce) {
  const Hello own_seat = hello(7, lacks(0)), one = hello(2, has(2));
  support_.add(1, own_seat);
  support_.add(2, one);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone);
  const Hello again = hello(8, lacks(0));
  support_.add(3, again);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone);
  const Hello other = hello(1, lacks(1));
  support_.add(4, other);
  EXPECT_EQ(majority(has(-1)), Majority::kOfPrevious);
  support_.remove(1, own_seat.node);
  EXPECT_EQ(majority(has(-1)), Majority::kOfPrevious) << "another one of that seat still says so";
}

// A spare, or a node that joins, is not needed to commit the round.
TEST_F(WhoLacksTheRound, WhoHadNoSeatBeforeDoesNotCount) {
  const Hello spare = hello(7, lacks(-1)), one = hello(1, has(1));
  support_.add(1, spare);
  support_.add(2, one);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone);
}

// An arbiter does not install rounds, so it must not count as a node that "lacks" the round.
TEST_F(WhoLacksTheRound, AnArbitersSeatDoesNotCount) {
  before_ = {.id = {1, 1}, .born = 1, .nodes = 2, .rank = 0, .arbiter = Arbiter::kEtcd, .founder = {9}};
  support_.count_for(kNewest, before_, released_);
  Hello arbiter = hello(0, lacks(2));
  arbiter.node = kArbiterId;
  support_.add(1, arbiter);
  EXPECT_EQ(majority(lacks(1)), Majority::kNone);
  const Hello other = hello(2, lacks(0));
  support_.add(2, other);
  EXPECT_EQ(majority(lacks(1)), Majority::kOfPrevious);
}

}  // namespace
}  // namespace ddprun::rendezvous
