// A query of all nodes: answers are counted, limited in size, and delivered when all have arrived or the time is over.
#include "launcher/asked/job_inquiry.hpp"

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

TEST(JobInquiry, AnswersOfAllNodesAreHandedOverAtOnce) {
  boost::asio::io_context io;
  std::vector<rendezvous::JobQuestion> put;
  JobInquiry inquiry(io, 100, [&](rendezvous::JobQuestion question) { put.push_back(std::move(question)); });
  std::string json;
  inquiry.ask({.text = "what", .nodes = 2, .within = std::chrono::hours(1)}, [&](std::string text) { json = std::move(text); });
  ASSERT_EQ(put.size(), 1u);
  EXPECT_EQ(put[0].number, 100u);
  EXPECT_EQ(put[0].text, "what");
  inquiry.hear(answer_of(2, 100, R"({"b":2})"));
  inquiry.hear(answer_of(2, 100, R"({"b":3})"));  // the same answer a second time
  inquiry.hear(answer_of(1, 99, R"({"a":1})"));   // an answer to another query
  EXPECT_EQ(json, "");
  inquiry.hear(answer_of(1, 100, R"({"a":1})"));
  EXPECT_EQ(json, R"({"answered":2,"of":2,"answers":[{"a":1},{"b":2}],"nodes":[")" + name_of({1}) + R"(",")" + name_of({2}) +
                      R"("]})");
}

TEST(JobInquiry, WhatIsNoObjectIsNoAnswerAndTheTimeEnds) {
  boost::asio::io_context io;
  JobInquiry inquiry(io, 1, [](const rendezvous::JobQuestion&) {});
  std::string json;
  inquiry.ask({.text = "what", .nodes = 2, .within = std::chrono::milliseconds(1)},
              [&](std::string text) { json = std::move(text); });
  inquiry.hear(answer_of(1, 1, "{}"));
  inquiry.hear(answer_of(2, 1, "]["));
  io.run();
  EXPECT_TRUE(json.starts_with(R"({"answered":1,"of":2,"answers":[{}],)")) << json;
  inquiry.hear(answer_of(2, 1, "{}"));  // too late
  EXPECT_TRUE(json.starts_with(R"({"answered":1,"of":2,"answers":[{}],)")) << json;
}

TEST(JobInquiry, MoreThanEightQuestionsAtATimeAreRefused) {
  boost::asio::io_context io;
  int put = 0;
  JobInquiry inquiry(io, 1, [&](const rendezvous::JobQuestion&) { ++put; });
  std::string refusal;
  for (int i = 0; i < 8; ++i)
    inquiry.ask({.text = "what", .within = std::chrono::hours(1)}, [](const std::string&) { FAIL(); });
  inquiry.ask({.text = "what", .within = std::chrono::hours(1)}, [&](std::string text) { refusal = std::move(text); });
  EXPECT_EQ(put, 8);
  EXPECT_NE(refusal.find("too many questions"), std::string::npos);
}

TEST(JobInquiry, OneNodeIsAskedAlone) {
  boost::asio::io_context io;
  std::vector<rendezvous::JobQuestion> put;
  JobInquiry inquiry(io, 1, [&](rendezvous::JobQuestion question) { put.push_back(std::move(question)); });
  std::vector<std::string> answers;
  const auto hear = [&](std::string text) { answers.push_back(std::move(text)); };
  const JobInquiry::Question question{
      .text = "what", .within = std::chrono::hours(1), .to = rendezvous::NodeId{7}, .most_bytes = 100};
  inquiry.ask(question, hear);
  inquiry.ask(question, hear);
  EXPECT_EQ(put[0].to, (rendezvous::NodeId{7}));
  EXPECT_EQ(put[0].most_bytes, 100u);
  inquiry.hear(answer_of(7, 1, "{}", 3));
  inquiry.hear(answer_of(7, 2, "", 3));  // the job does not run here
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0], R"({"answered":1,"of":3,"answers":[{}],"nodes":[")" + name_of({7}) + R"("]})");
  EXPECT_EQ(answers[1], R"({"answered":0,"of":3,"answers":[],"nodes":[]})");
  for (int i = 0; i < 17; ++i) inquiry.ask(question, hear);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_NE(answers[2].find("too many questions"), std::string::npos);
}

TEST(JobInquiry, ANodesNameIsReadAgain) {
  EXPECT_EQ(node_of(name_of({1, 2, 255})), (rendezvous::NodeId{1, 2, 255}));
  EXPECT_FALSE(node_of("").has_value());
  EXPECT_FALSE(node_of("AAAA").has_value());
}

TEST(JobInquiry, AllAnswersTogetherStaySmall) {
  EXPECT_EQ(most_bytes_of_each(1), rendezvous::kMaxAnswerBytes);
  EXPECT_EQ(most_bytes_of_each(1000), (8u << 20) / 1000);
  EXPECT_EQ(most_bytes_of_each(1'000'000), 1024u);
}

}  // namespace
}  // namespace ddprun
