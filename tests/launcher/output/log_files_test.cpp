// Tests which lines a reader of log files gets when it reads repeatedly.
#include "launcher/output/log_files.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

class LogFiles : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((logs_ / file).parent_path());
    std::ofstream(logs_ / file, std::ios::app | std::ios::binary) << text;
  }
  // Returns the lines of the next answer by rank. Lines from stderr have the prefix "!".
  std::map<int, std::string> next(LogRequest request = {}) {
    request.cursor = cursor_;
    LogBytes bytes = read_logs(logs_, local_ranks_, request);
    cursor_ = bytes.cursor;
    more_ = bytes.more;
    std::map<int, std::string> found;
    for (const LogPiece& piece : bytes.pieces) found[piece.rank] += (piece.error ? "!" : "") + piece.bytes;
    return found;
  }
  using Found = std::map<int, std::string>;

  test::TemporaryFolder folder_;
  fs::path logs_ = folder_.path() / "logs";
  LocalRanks local_ranks_{2, 2};
  std::vector<LogPosition> cursor_;
  bool more_ = false;
};

TEST_F(LogFiles, LocalRanksAreReadOnce) {
  EXPECT_EQ(next(), Found());  // no log exists yet, not even the folder
  for (const char* rank : {"1", "2", "3", "4"}) write(std::string("round-000/rank-0000") + rank + "/stdout.log", rank);
  write("round-000/rank-00002/stderr.log", "e");
  EXPECT_EQ(next(), (Found{{2, "2!e"}, {3, "3"}}));
  EXPECT_EQ(next(), Found());
  write("round-000/rank-00003/stdout.log", std::string("\0\xff\n", 3));
  EXPECT_EQ(next(), (Found{{3, std::string("\0\xff\n", 3)}}));
}

TEST_F(LogFiles, NewestAndLaterRoundsAreRead) {
  write("round-000/rank-00002/stdout.log", "old");
  write("round-000/rank-00003/stdout.log", "a survivor of round 0");
  write("round-001/rank-00002/stdout.log", "new");
  EXPECT_EQ(next(), (Found{{2, "new"}, {3, "a survivor of round 0"}}));
  write("round-001/rank-00002/stdout.log", ", and its end");
  write("round-010/rank-00002/stdout.log", "; ten");
  EXPECT_EQ(next(), (Found{{2, ", and its end; ten"}}));
}

TEST_F(LogFiles, AMovedRankIsReadToItsEnd) {
  write("round-000/rank-00002/stdout.log", "a");
  EXPECT_EQ(next(), (Found{{2, "a"}}));
  local_ranks_ = {0, 2};
  write("round-000/rank-00002/stdout.log", "b");
  write("round-001/rank-00002/stdout.log", "of another node, in a run directory that nodes share");
  write("round-001/rank-00000/stdout.log", "0");
  EXPECT_EQ(next(), (Found{{0, "0"}, {2, "b"}}));
  EXPECT_EQ(next(), Found());
}

TEST_F(LogFiles, TorchrunFoldersHaveLocalRanks) {
  write("attempt_0/0/stdout.log", "x");
  write("attempt_0/1/stderr.log", "y");
  EXPECT_EQ(next({.rank = 3}), (Found{{3, "!y"}}));
  cursor_.clear();
  EXPECT_EQ(next(), (Found{{2, "x"}, {3, "!y"}}));
  write("attempt_1/0/stdout.log", "z");
  EXPECT_EQ(next(), (Found{{2, "z"}}));
}

TEST_F(LogFiles, TailAppliesToNewFiles) {
  write("round-000/rank-00002/stdout.log", "1\n2\n3\n");
  write("round-000/rank-00003/stderr.log", "1\n2\nhalf");
  EXPECT_EQ(next({.tail = 2}), (Found{{2, "2\n3\n"}, {3, "!2\nhalf"}}));
  cursor_.clear();
  EXPECT_EQ(next({.only_errors = true, .tail = 0}), Found());
  EXPECT_EQ(cursor_.size(), 1u);
  write("round-000/rank-00003/stderr.log", "!");
  EXPECT_EQ(next({.only_errors = true}), (Found{{3, "!!"}}));
}

TEST_F(LogFiles, ABoundedAnswerIsSharedAmongFiles) {
  write("round-000/rank-00002/stdout.log", std::string(10'000, 'a'));
  write("round-000/rank-00003/stdout.log", std::string(10'000, 'b'));
  LogRequest request{.follows = true, .max_bytes = 4000};
  EXPECT_EQ(next(request), (Found{{2, std::string(2000, 'a')}, {3, std::string(2000, 'b')}}));
  EXPECT_TRUE(more_);
  request.follows = false;
  EXPECT_EQ(next(request), (Found{{2, std::string(4000, 'a')}}));
  std::size_t bytes = 0;
  while (more_) {
    for (const auto& [rank, text] : next(request)) bytes += text.size();
  }
  EXPECT_EQ(bytes, 20'000u - 8000u);
}

TEST_F(LogFiles, EachChangeWakesTheReader) {
  const int inotify = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  char events[4096];
  const auto wakes = [&] { return ::read(inotify, events, sizeof events) > 0; };
  fs::create_directories(logs_);
  const auto update = [&] { cursor_ = read_logs(logs_, local_ranks_, {.cursor = cursor_}, inotify).cursor; };
  update();
  EXPECT_FALSE(wakes());
  for (const char* folder : {"round-000", "round-000/rank-00002"}) {
    fs::create_directory(logs_ / folder);
    EXPECT_TRUE(wakes()) << folder;
    update();
  }
  for (const char* text : {"first", "second"}) {
    write("round-000/rank-00002/stdout.log", text);
    EXPECT_TRUE(wakes()) << text;
    update();
    EXPECT_FALSE(wakes());
  }
  ::close(inotify);
}

}  // namespace
}  // namespace ddprun
