// Tests queries to one node or to all nodes of a job. The coordinator forwards each query and stores no answers.
#include <gtest/gtest.h>

#include "tests/rendezvous/coordinator/running_round.hpp"

namespace ddprun::rendezvous {
namespace {

TEST_F(RunningRound, QueryReachesAllNodesAndAnswersReturn) {
  send_from(kOther, ClusterQuery{.number = 7, .max_bytes = 100, .text = "status"});
  ASSERT_EQ(queries_.size(), 2u);
  EXPECT_EQ(queries_[0].second.requester, (NodeId{2}));
  send_from(kSelfLink, NodeAnswer{.requester = {2}, .number = 7, .text = "{}"});
  ASSERT_EQ(answered_.size(), 1u);
  EXPECT_EQ(answered_[0].first, kOther);
  EXPECT_EQ(answered_[0].second.node, (NodeId{1}));
  EXPECT_EQ(answered_[0].second.nodes, 2);
}

TEST_F(RunningRound, QueryToOneNodeReachesOnlyThatNode) {
  send_from(kSelfLink, ClusterQuery{.number = 8, .max_bytes = 100, .text = "logs", .to = {2}});
  ASSERT_EQ(queries_.size(), 1u);
  EXPECT_EQ(queries_[0].first, kOther);
  EXPECT_TRUE(answered_.empty());
}

TEST_F(RunningRound, QueryToAMissingNodeIsAnsweredImmediately) {
  send_from(kOther, ClusterQuery{.number = 9, .max_bytes = 100, .text = "logs", .to = {3}});
  EXPECT_TRUE(queries_.empty());
  ASSERT_EQ(answered_.size(), 1u);
  EXPECT_EQ(answered_[0].first, kOther);
  EXPECT_EQ(answered_[0].second.number, 9u);
  EXPECT_EQ(answered_[0].second.text, "");
}

}  // namespace
}  // namespace ddprun::rendezvous
