// Who asks all nodes: the answers are counted, bounded, and handed over when all have come or the time is over.
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
  inquiry.ask("what", 2, std::chrono::hours(1), [&](std::string text) { json = std::move(text); });
  ASSERT_EQ(put.size(), 1u);
  EXPECT_EQ(put[0].number, 100u);
  EXPECT_EQ(put[0].text, "what");
  inquiry.hear(answer_of(2, 100, R"({"b":2})"));
  inquiry.hear(answer_of(2, 100, R"({"b":3})"));  // twice
  inquiry.hear(answer_of(1, 99, R"({"a":1})"));   // to another question
  EXPECT_EQ(json, "");
  inquiry.hear(answer_of(1, 100, R"({"a":1})"));
  EXPECT_EQ(json, R"({"answered":2,"of":2,"answers":[{"a":1},{"b":2}]})");
}

TEST(JobInquiry, WhatIsNoObjectIsNoAnswerAndTheTimeEnds) {
  boost::asio::io_context io;
  JobInquiry inquiry(io, 1, [](const rendezvous::JobQuestion&) {});
  std::string json;
  inquiry.ask("what", 2, std::chrono::milliseconds(1), [&](std::string text) { json = std::move(text); });
  inquiry.hear(answer_of(1, 1, "{}"));
  inquiry.hear(answer_of(2, 1, "]["));
  io.run();
  EXPECT_EQ(json, R"({"answered":1,"of":2,"answers":[{}]})");
  inquiry.hear(answer_of(2, 1, "{}"));  // too late
  EXPECT_EQ(json, R"({"answered":1,"of":2,"answers":[{}]})");
}

TEST(JobInquiry, MoreThanEightQuestionsAtATimeAreRefused) {
  boost::asio::io_context io;
  int put = 0;
  JobInquiry inquiry(io, 1, [&](const rendezvous::JobQuestion&) { ++put; });
  std::string refusal;
  for (int i = 0; i < 8; ++i) inquiry.ask("what", 1, std::chrono::hours(1), [](const std::string&) { FAIL(); });
  inquiry.ask("what", 1, std::chrono::hours(1), [&](std::string text) { refusal = std::move(text); });
  EXPECT_EQ(put, 8);
  EXPECT_NE(refusal.find("too many questions"), std::string::npos);
}

TEST(JobInquiry, AllAnswersTogetherStaySmall) {
  EXPECT_EQ(most_bytes_of_each(1), rendezvous::kMaxAnswerBytes);
  EXPECT_EQ(most_bytes_of_each(1000), (8u << 20) / 1000);
  EXPECT_EQ(most_bytes_of_each(1'000'000), 1024u);
}

}  // namespace
}  // namespace ddprun
