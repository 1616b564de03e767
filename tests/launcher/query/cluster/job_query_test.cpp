// Tests a query to all nodes. Answers are counted and limited in size. They are delivered when all nodes have answered, or
// after a timeout.
#include "launcher/query/cluster/job_query.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>

namespace ddprun {
namespace {

using rendezvous::JobAnswer;

JobAnswer answer_of(std::uint8_t node, std::uint64_t number, std::string text, int nodes = 2) {
  return {.number = number, .nodes = nodes, .node = {node}, .text = std::move(text)};
}

TEST(JobQuery, AnswersOfAllNodesArriveTogether) {
  boost::asio::io_context io;
  std::vector<rendezvous::ClusterQuery> sent;
  JobQuery queries(io, 100, [&](rendezvous::ClusterQuery question) { sent.push_back(std::move(question)); });
  std::string json;
  queries.query({.text = "what", .nodes = 2, .within = std::chrono::hours(1)},
                [&](std::string text) { json = std::move(text); });
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].number, 100u);
  EXPECT_EQ(sent[0].text, "what");
  queries.receive(answer_of(2, 100, R"({"b":2})"));
  queries.receive(answer_of(2, 100, R"({"b":3})"));  // a second answer of the same node does not count
  queries.receive(answer_of(1, 99, R"({"a":1})"));   // an answer to another query does not count
  EXPECT_EQ(json, "");
  queries.receive(answer_of(1, 100, R"({"a":1})"));
  EXPECT_EQ(json, R"({"answered":2,"of":2,"answers":[{"a":1},{"b":2}],"nodes":[")" + name_of({1}) + R"(",")" + name_of({2}) +
                      R"("]})");
}

TEST(JobQuery, NonObjectAnswersAreIgnoredUntilTimeout) {
  boost::asio::io_context io;
  JobQuery queries(io, 1, [](const rendezvous::ClusterQuery&) {});
  std::string json;
  queries.query({.text = "what", .nodes = 2, .within = std::chrono::milliseconds(1)},
                [&](std::string text) { json = std::move(text); });
  queries.receive(answer_of(1, 1, "{}"));
  queries.receive(answer_of(2, 1, "]["));
  io.run();
  EXPECT_TRUE(json.starts_with(R"({"answered":1,"of":2,"answers":[{}],)")) << json;
  queries.receive(answer_of(2, 1, "{}"));  // this answer comes too late and does not count
  EXPECT_TRUE(json.starts_with(R"({"answered":1,"of":2,"answers":[{}],)")) << json;
}

TEST(JobQuery, MoreThanEightConcurrentQueriesAreRefused) {
  boost::asio::io_context io;
  int sent = 0;
  JobQuery queries(io, 1, [&](const rendezvous::ClusterQuery&) { ++sent; });
  std::string refusal;
  for (int i = 0; i < 8; ++i)
    queries.query({.text = "what", .within = std::chrono::hours(1)}, [](const std::string&) { FAIL(); });
  queries.query({.text = "what", .within = std::chrono::hours(1)}, [&](std::string text) { refusal = std::move(text); });
  EXPECT_EQ(sent, 8);
  EXPECT_NE(refusal.find("too many open queries"), std::string::npos);
}

TEST(JobQuery, ASingleNodeCanBeQueried) {
  boost::asio::io_context io;
  std::vector<rendezvous::ClusterQuery> sent;
  JobQuery queries(io, 1, [&](rendezvous::ClusterQuery question) { sent.push_back(std::move(question)); });
  std::vector<std::string> answers;
  const auto receive = [&](std::string text) { answers.push_back(std::move(text)); };
  const JobQuery::Request question{
      .text = "what", .within = std::chrono::hours(1), .to = rendezvous::NodeId{7}, .max_bytes = 100};
  queries.query(question, receive);
  queries.query(question, receive);
  EXPECT_EQ(sent[0].to, (rendezvous::NodeId{7}));
  EXPECT_EQ(sent[0].max_bytes, 100u);
  queries.receive(answer_of(7, 1, "{}", 3));
  queries.receive(answer_of(7, 2, "", 3));  // does not count, because the job does not run on that node
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0], R"({"answered":1,"of":3,"answers":[{}],"nodes":[")" + name_of({7}) + R"("]})");
  EXPECT_EQ(answers[1], R"({"answered":0,"of":3,"answers":[],"nodes":[]})");
  for (int i = 0; i < 17; ++i) queries.query(question, receive);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_NE(answers[2].find("too many open queries"), std::string::npos);
}

TEST(JobQuery, NodeNamesRoundTrip) {
  EXPECT_EQ(node_of(name_of({1, 2, 255})), (rendezvous::NodeId{1, 2, 255}));
  EXPECT_FALSE(node_of("").has_value());
  EXPECT_FALSE(node_of("AAAA").has_value());
}

TEST(JobQuery, TotalAnswerSizeIsBounded) {
  EXPECT_EQ(max_answer_bytes(1), rendezvous::kMaxAnswerBytes);
  EXPECT_EQ(max_answer_bytes(1000), (8u << 20) / 1000);
  EXPECT_EQ(max_answer_bytes(1'000'000), 1024u);
}

}  // namespace
}  // namespace ddprun
