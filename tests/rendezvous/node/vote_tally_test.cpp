// Tests which rounds the voters of a candidate support, if some voters do not have the newest round. A majority of the previous
// round alone is enough only if so few nodes have the newest round that it cannot have been committed.
#include "rendezvous/node/vote_tally.hpp"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

using Majority = VoteTally::Majority;

const Config kBefore{.id = {1, 1}, .born = 1, .nodes = 3, .rank = 0};
const Config kNewest{.id = {1, 2}, .born = 1, .nodes = 5, .rank = 0};

// In both rounds, node N has rank N. The newest round has two more nodes than the previous round, but too few of its nodes are
// connected.
class NodesWithoutTheRound : public testing::Test {
 protected:
  void SetUp() override { vote_tally_.count_for(kNewest, before_, released_); }
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
  Majority majority(const PersistentState& own) const { return vote_tally_.with({1, 0}, own); }

  Config before_ = kBefore;
  ReleasedRanks released_;
  VoteTally vote_tally_{Rules{}};
};

TEST_F(NodesWithoutTheRound, OneOfThreeDoesNotExcludeACommit) {
  const Hello one = hello(1, has(1));
  vote_tally_.add(1, one);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone);
}

TEST_F(NodesWithoutTheRound, NoneOfTheCandidatesVoters) {
  const Hello one = hello(1, has(1));
  vote_tally_.add(1, one);
  // The other nodes of the newest round may have elected a coordinator, so there is no majority.
  EXPECT_EQ(majority(has(0)), Majority::kNone);
}

TEST_F(NodesWithoutTheRound, TwoOfThreeExcludeACommit) {
  const Hello one = hello(1, lacks(1)), two = hello(2, has(2));
  vote_tally_.add(1, one);
  EXPECT_EQ(majority(lacks(0)), Majority::kPreviousOnly);
  vote_tally_.add(2, two);
  EXPECT_EQ(majority(lacks(0)), Majority::kPreviousOnly) << "no matter which other node has it";
  EXPECT_EQ(majority(has(0)), Majority::kNone) << "the candidate has it as well";
}

TEST_F(NodesWithoutTheRound, MayDisconnectOrInstallIt) {
  const Hello one = hello(1, lacks(1)), two = hello(2, has(2));
  vote_tally_.add(1, one);
  vote_tally_.add(2, two);
  ASSERT_EQ(majority(lacks(0)), Majority::kPreviousOnly);
  vote_tally_.remove(1, one.node);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone) << "it may install it after its link is lost";
  Hello later = hello(1, has(1));
  later.attempt = 2;
  vote_tally_.add(3, one);
  ASSERT_EQ(majority(lacks(0)), Majority::kPreviousOnly);
  vote_tally_.add(4, later);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone);
}

// Several nodes that have not installed the round report the same rank, which may be the candidate's own rank. They count only
// once.
TEST_F(NodesWithoutTheRound, EachRankCountsOnce) {
  const Hello same_rank = hello(7, lacks(0)), one = hello(2, has(2));
  vote_tally_.add(1, same_rank);
  vote_tally_.add(2, one);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone);
  const Hello again = hello(8, lacks(0));
  vote_tally_.add(3, again);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone);
  const Hello other = hello(1, lacks(1));
  vote_tally_.add(4, other);
  EXPECT_EQ(majority(has(-1)), Majority::kPreviousOnly);
  vote_tally_.remove(1, same_rank.node);
  EXPECT_EQ(majority(has(-1)), Majority::kPreviousOnly) << "another node with that rank still lacks it";
}

// The commit of a round does not need a spare or a new node, so these nodes are not counted.
TEST_F(NodesWithoutTheRound, SparesDoNotCount) {
  const Hello spare = hello(7, lacks(-1)), one = hello(1, has(1));
  vote_tally_.add(1, spare);
  vote_tally_.add(2, one);
  EXPECT_EQ(majority(lacks(0)), Majority::kNone);
}

// An arbiter never installs (records) a round. So it must not count as a node that has not installed the round.
TEST_F(NodesWithoutTheRound, ArbiterDoesNotCount) {
  before_ = {.id = {1, 1}, .born = 1, .nodes = 2, .rank = 0, .arbiter = Arbiter::kEtcd, .founder = {9}};
  vote_tally_.count_for(kNewest, before_, released_);
  Hello arbiter = hello(0, lacks(2));
  arbiter.node = kArbiterId;
  vote_tally_.add(1, arbiter);
  EXPECT_EQ(majority(lacks(1)), Majority::kNone);
  const Hello other = hello(2, lacks(0));
  vote_tally_.add(2, other);
  EXPECT_EQ(majority(lacks(1)), Majority::kPreviousOnly);
}

}  // namespace
}  // namespace ddprun::rendezvous
