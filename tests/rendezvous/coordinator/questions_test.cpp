// Queries to all nodes of a job, or to one: the coordinator forwards them, and stores nothing.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

TEST_F(RunningRound, AQuestionGoesToEveryNodeAndTheAnswersToWhoAsked) {
  says(kOther, JobQuestion{.number = 7, .most_bytes = 100, .text = "status"});
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_EQ(asked_[0].second.asker, (NodeId{2}));
  says(kSelfLink, NodeAnswer{.asker = {2}, .number = 7, .text = "{}"});
  ASSERT_EQ(answered_.size(), 1u);
  EXPECT_EQ(answered_[0].first, kOther);
  EXPECT_EQ(answered_[0].second.node, (NodeId{1}));
  EXPECT_EQ(answered_[0].second.nodes, 2);
}

TEST_F(RunningRound, AQuestionToOneNodeGoesToThatNodeAlone) {
  says(kSelfLink, JobQuestion{.number = 8, .most_bytes = 100, .text = "logs", .to = {2}});
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].first, kOther);
  EXPECT_TRUE(answered_.empty());
}

TEST_F(RunningRound, ThatTheOnlyNodeIsNotHereIsSaidAtOnce) {
  says(kOther, JobQuestion{.number = 9, .most_bytes = 100, .text = "logs", .to = {3}});
  EXPECT_TRUE(asked_.empty());
  ASSERT_EQ(answered_.size(), 1u);
  EXPECT_EQ(answered_[0].first, kOther);
  EXPECT_EQ(answered_[0].second.number, 9u);
  EXPECT_EQ(answered_[0].second.text, "");
}

}  // namespace
}  // namespace ddprun::rendezvous
