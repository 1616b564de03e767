// Tests the file of the history of nodes: simultaneous writers, damaged content, and content that this version cannot read.
#include "launcher/node_history/history_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kToday = 1'800'000'000;

class NodeHistoryFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "ddprun_history_XXXXXX").string();
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    folder_ = made;
  }
  void TearDown() override { fs::remove_all(folder_); }

  NodeHistoryFile file() const { return NodeHistoryFile(folder_ / "ddprun"); }
  fs::path path() const { return folder_ / "ddprun" / "node-failures.json"; }
  void write(const std::string& text) const {
    fs::create_directories(path().parent_path());
    std::ofstream(path()) << text;
  }
  static std::string content_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static NodeHistory one(const std::string& host, std::int64_t time_s = kToday) {
    return {{.time_s = time_s, .host = host, .cause = "lost", .run = "/runs/\"a\""}};
  }

  fs::path folder_;
};

TEST_F(NodeHistoryFileTest, AddsAndReads) {
  EXPECT_TRUE(file().read().history.empty());
  EXPECT_EQ(file().read().problem, "");
  EXPECT_EQ(file().add(one("a", kToday - 1), kToday), "");
  EXPECT_EQ(file().add(one("b"), kToday), "");
  const NodeHistory history = file().read().history;
  ASSERT_EQ(history.size(), 2u);
  EXPECT_EQ(history[0], one("a", kToday - 1)[0]);
  EXPECT_EQ(history[1], one("b")[0]);
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(NodeHistoryFileTest, WithoutAFolderNothingIsStored) {
  EXPECT_EQ(NodeHistoryFile({}).add(one("a"), kToday), "");
  EXPECT_TRUE(NodeHistoryFile({}).read().history.empty());
}

// Four processes add twelve failures each, and each process also has a second thread that writes.
TEST_F(NodeHistoryFileTest, SimultaneousWritersLoseNothing) {
  constexpr int kProcesses = 4, kEach = 12;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    bool good = true;
    for (int i = 0; i < kEach; ++i) good = good && file().add(one("p" + std::to_string(process), kToday - i), kToday).empty();
    ::_exit(good ? 0 : 1);
  }
  std::thread other([this] {
    for (int i = 0; i < kEach; ++i) EXPECT_EQ(file().add(one("thread", kToday - i), kToday), "");
  });
  for (int i = 0; i < kEach; ++i) EXPECT_EQ(file().read().problem, "");  // a reader needs no lock
  other.join();
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(file().read().history.size(), static_cast<std::size_t>((kProcesses + 1) * kEach));
}

TEST_F(NodeHistoryFileTest, DamagedContentIsSetAside) {
  for (const std::string& damaged :
       {std::string(), std::string("{"), std::string("[]"), std::string("{\"format\":1}"),
        std::string(R"({"format":1,"failures":[{"host":"a"}]})"), std::string(R"({"format":1,"failures":7})"),
        std::string(R"({"format":"one","failures":[]})"), std::string("\0\0\0", 3), std::string(100, '[')}) {
    write(damaged);
    const NodeHistoryFile::Content read = file().read();
    EXPECT_TRUE(read.history.empty()) << damaged;
    EXPECT_NE(read.problem.find("was damaged: it is kept as node-failures.json.damaged"), std::string::npos) << read.problem;
    EXPECT_EQ(read.problem.find('\n'), std::string::npos);
    EXPECT_FALSE(fs::exists(path()));
    EXPECT_EQ(content_of(path().string() + ".damaged"), damaged);
    write(damaged);
    EXPECT_NE(file().add(one("a"), kToday).find("was damaged"), std::string::npos);
    EXPECT_EQ(file().read().history, one("a"));
  }
}

TEST_F(NodeHistoryFileTest, AFileThatIsTooLongIsLeftAlone) {
  write(std::string(2 << 20, ' '));
  EXPECT_NE(file().read().problem.find("cannot be read"), std::string::npos);
  EXPECT_NE(file().add(one("a"), kToday).find("could not be extended"), std::string::npos);
  EXPECT_EQ(fs::file_size(path()), 2u << 20);
}

TEST_F(NodeHistoryFileTest, ALaterFormatIsLeftAlone) {
  const std::string later = R"({"format":2,"failures":{}})";
  write(later);
  EXPECT_NE(file().read().problem.find("later version"), std::string::npos);
  EXPECT_NE(file().add(one("a"), kToday).find("later version"), std::string::npos);
  EXPECT_EQ(content_of(path()), later);
}

TEST_F(NodeHistoryFileTest, AFolderThatCannotBeCreatedIsReported) {
  std::ofstream(folder_ / "ddprun") << "a file";
  EXPECT_TRUE(file().read().history.empty());
  const std::string problem = file().add(one("a"), kToday);
  EXPECT_NE(problem.find("could not be extended by a failure"), std::string::npos) << problem;
  EXPECT_EQ(problem.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace ddprun
