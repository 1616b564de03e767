// Tests a query for the log lines of a node's workers. The node answers immediately. If `follow` is set, it answers as soon as
// new lines exist.
#include "launcher/query/cluster/log_tailer.hpp"

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

class LogTailerTest : public testing::Test, private LogTailer::Node {
 protected:
  void write(const std::string& text) const {
    std::filesystem::create_directories(folder_.path() / "round-000/rank-00001");
    std::ofstream(folder_.path() / "round-000/rank-00001/stdout.log", std::ios::app) << text;
  }
  void query(const json& question) { readers_.receive({.requester = {1}, .number = 1, .max_bytes = 64 << 10}, question); }
  // Waits for the next answer and returns it as JSON.
  json next() {
    while (answers_.empty()) io_.run_one();
    json answer = std::move(answers_.front());
    answers_.erase(answers_.begin());
    return answer;
  }
  LocalRanks local_ranks() const override { return {1, 1}; }
  std::int64_t round() const override { return 4; }
  static std::string text_of(const json& answer) {
    std::string text;
    for (const LogPiece& piece : parse_pieces(answer.at("lines"))) text += std::to_string(piece.rank) + ":" + piece.bytes;
    return text;
  }

  test::TemporaryFolder folder_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> stays_{io_.get_executor()};
  FileQueue files_{[this](FileQueue::Work then) { boost::asio::post(io_, std::move(then)); }};
  std::vector<json> answers_;
  LogTailer readers_{io_, files_, folder_.path(), *this,
                     [this](const rendezvous::NodeQuery&, json answer) { answers_.push_back(std::move(answer)); }};
};

TEST_F(LogTailerTest, AnswersImmediatelyEvenWithoutLines) {
  query({{"ask", "log lines"}});
  EXPECT_EQ(text_of(next()), "");
  write("one\ntwo\n");
  query({{"ask", "log lines"}, {"tail", 1}});
  const json answer = next();
  EXPECT_EQ(text_of(answer), "1:two\n");
  EXPECT_EQ(answer.at("more"), false);
  EXPECT_EQ(answer.at("round"), 4);
  query({{"ask", "log lines"}, {"begun", answer.at("begun")}});
  EXPECT_EQ(text_of(next()), "");
}

TEST_F(LogTailerTest, FollowingReaderIsAnsweredWhenLinesArrive) {
  query({{"ask", "log lines"}, {"follow", true}, {"tail", 10}});  // the query arrives before the folders exist
  for (int turn = 0; turn < 3; ++turn) {                          // the node searches for log files and finds none
    io_.poll();
    files_.finish();
  }
  EXPECT_TRUE(answers_.empty());
  write("first");
  json answer = next();
  EXPECT_EQ(text_of(answer), "1:first");
  query({{"ask", "log lines"}, {"follow", true}, {"begun", answer.at("begun")}});
  write(" and second");
  answer = next();
  EXPECT_EQ(text_of(answer), "1: and second");
}

TEST_F(LogTailerTest, AnswersAreBoundedAndReportMore) {
  write(std::string(200'000, 'x'));
  std::size_t bytes = 0;
  json answer;
  for (bool more = true; more; more = answer.at("more").get<bool>()) {
    query(answer.is_null() ? json{{"ask", "log lines"}} : json{{"ask", "log lines"}, {"begun", answer.at("begun")}});
    answer = next();
    EXPECT_LE(answer.dump().size(), LogTailer::kMaxBytes);
    for (const LogPiece& piece : parse_pieces(answer.at("lines"))) bytes += piece.bytes.size();
  }
  EXPECT_EQ(bytes, 200'000u);
}

TEST_F(LogTailerTest, MalformedQueriesAndTooManyReadersAreRefused) {
  for (const json& cursor : {json(1), json({{1, 2}}), json({{0, 1, 2, 0}}), json({{-1, 0, 0, 0}}), json({{0, 0, 0, "x"}}),
                             json(std::vector<json>(kMaxCursorFiles + 1, json({0, 0, 0, 0})))}) {
    query({{"ask", "log lines"}, {"begun", cursor}});
    EXPECT_TRUE(next().contains("error")) << cursor;
  }
  query({{"ask", "log lines"}, {"rank", "first"}});
  EXPECT_TRUE(next().contains("error"));
  for (std::size_t i = 0; i <= LogTailer::kMaxReaders; ++i) query({{"ask", "log lines"}, {"follow", true}});
  EXPECT_TRUE(next().at("error").get<std::string>().starts_with("too many users"));
}

}  // namespace
}  // namespace ddprun
