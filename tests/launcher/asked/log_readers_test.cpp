// A node that is queried for the lines of its workers' logs: it answers immediately, or as soon as there are lines.
#include "launcher/asked/log_readers.hpp"

#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <boost/asio/post.hpp>

#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

class LogReadersTest : public testing::Test {
 protected:
  void write(const std::string& text) const {
    std::filesystem::create_directories(folder_.path() / "round-000/rank-00001");
    std::ofstream(folder_.path() / "round-000/rank-00001/stdout.log", std::ios::app) << text;
  }
  void ask(const json& question) { readers_.hear({.asker = {1}, .number = 1, .most_bytes = 64 << 10}, question); }
  // Waits for the next answer.
  json next() {
    while (answers_.empty()) io_.run_one();
    json answer = std::move(answers_.front());
    answers_.erase(answers_.begin());
    return answer;
  }
  static std::string text_of(const json& answer) {
    std::string text;
    for (const LogPiece& piece : pieces_of(answer.at("lines"))) text += std::to_string(piece.rank) + ":" + piece.bytes;
    return text;
  }

  test::TemporaryFolder folder_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> stays_{io_.get_executor()};
  FileQueue files_{[this](FileQueue::Work then) { boost::asio::post(io_, std::move(then)); }};
  std::vector<json> answers_;
  LogReaders readers_{
      io_,
      files_,
      folder_.path(),
      {.own =
           [] {
             return OwnRanks{1, 1};
           },
       .round = [] { return 4; },
       .answer = [this](const rendezvous::NodeQuestion&, json answer) { answers_.push_back(std::move(answer)); }}};
};

TEST_F(LogReadersTest, WhatIsThereIsAnsweredAtOnceAndNothingToo) {
  ask({{"ask", "log lines"}});
  EXPECT_EQ(text_of(next()), "");
  write("one\ntwo\n");
  ask({{"ask", "log lines"}, {"tail", 1}});
  const json answer = next();
  EXPECT_EQ(text_of(answer), "1:two\n");
  EXPECT_EQ(answer.at("more"), false);
  EXPECT_EQ(answer.at("round"), 4);
  ask({{"ask", "log lines"}, {"begun", answer.at("begun")}});
  EXPECT_EQ(text_of(next()), "");
}

TEST_F(LogReadersTest, WhoFollowsIsAnsweredWhenSomethingComes) {
  ask({{"ask", "log lines"}, {"follow", true}, {"tail", 10}});  // even the folders do not exist
  for (int turn = 0; turn < 3; ++turn) {                        // it reads, and finds no lines
    io_.poll();
    files_.finish();
  }
  EXPECT_TRUE(answers_.empty());
  write("first");
  json answer = next();
  EXPECT_EQ(text_of(answer), "1:first");
  ask({{"ask", "log lines"}, {"follow", true}, {"begun", answer.at("begun")}});
  write(" and second");
  answer = next();
  EXPECT_EQ(text_of(answer), "1: and second");
}

TEST_F(LogReadersTest, AnswersAreBoundedAndMoreIsSaid) {
  write(std::string(200'000, 'x'));
  std::size_t bytes = 0;
  json answer;
  for (bool more = true; more; more = answer.at("more").get<bool>()) {
    ask(answer.is_null() ? json{{"ask", "log lines"}} : json{{"ask", "log lines"}, {"begun", answer.at("begun")}});
    answer = next();
    EXPECT_LE(answer.dump().size(), LogReaders::kMostBytes);
    for (const LogPiece& piece : pieces_of(answer.at("lines"))) bytes += piece.bytes.size();
  }
  EXPECT_EQ(bytes, 200'000u);
}

TEST_F(LogReadersTest, NonsenseAndTooManyReadersAreRefused) {
  for (const json& begun : {json(1), json({{1, 2}}), json({{0, 1, 2, 0}}), json({{-1, 0, 0, 0}}), json({{0, 0, 0, "x"}}),
                            json(std::vector<json>(kMostBegunFiles + 1, json({0, 0, 0, 0})))}) {
    ask({{"ask", "log lines"}, {"begun", begun}});
    EXPECT_TRUE(next().contains("error")) << begun;
  }
  ask({{"ask", "log lines"}, {"rank", "first"}});
  EXPECT_TRUE(next().contains("error"));
  for (std::size_t i = 0; i <= LogReaders::kMostReaders; ++i) ask({{"ask", "log lines"}, {"follow", true}});
  EXPECT_TRUE(next().at("error").get<std::string>().starts_with("too many people"));
}

}  // namespace
}  // namespace ddprun
