// What workers print reaches the log byte for byte and the console line by line; the console neither blocks nor tears lines.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "launcher/console_writer.hpp"
#include "launcher/worker_output.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

struct Pipe {
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  }
  ~Pipe() {
    close_reader();
    ::close(ends[1]);
  }
  void close_reader() {
    if (ends[0] >= 0) ::close(ends[0]);
    ends[0] = -1;
  }
  // What is in the pipe now.
  std::string read_now() {
    std::string text;
    char buffer[65536];
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    for (ssize_t count = 0; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(count));
    return text;
  }
  int ends[2];
};

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class OutputTest : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    std::string name = (fs::temp_directory_path() / "ddprun_output_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static void send(WorkerOutput& output, int rank, Stream stream, std::string_view text) {
    output.bytes(rank, stream, {text.data(), text.size()});
  }

  fs::path folder_;
  boost::asio::io_context io_;
  Pipe out_, err_;
};

TEST_F(OutputTest, LinesArePrefixedAndFilesAreNot) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, console, folder_, 2);
  output.begin_round(3);
  send(output, 1, Stream::kStdout, "one\ntw");
  send(output, 0, Stream::kStdout, "other\n");
  send(output, 1, Stream::kStdout, "o\n");
  send(output, 1, Stream::kStderr, "bad\n");
  EXPECT_EQ(out_.read_now(), "[rank 1] one\n[rank 0] other\n[rank 1] two\n");
  EXPECT_EQ(err_.read_now(), "[rank 1] bad\n");
  EXPECT_EQ(contents(folder_ / "round-003/rank-00001/stdout.log"), "one\ntwo\n");
  EXPECT_EQ(output.stderr_log(1), folder_ / "round-003/rank-00001/stderr.log");
  EXPECT_EQ(contents(output.stderr_log(1)), "bad\n");
}

TEST_F(OutputTest, RawOutputOfScriptsIsPassedOnAsItIs) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  console.set_rules({.rank_prefix = false, .log_files = false});
  WorkerOutput output(io_, console, folder_, 1);
  output.begin_round(0);
  send(output, 0, Stream::kStdout, "\xff\r\n end");
  output.end_of_stream(0, Stream::kStdout);
  EXPECT_EQ(out_.read_now(), "\xff\r\n end");
  EXPECT_TRUE(fs::exists(output.rank_folder(0)));
  EXPECT_FALSE(fs::exists(output.rank_folder(0) / "stdout.log"));
  EXPECT_EQ(output.stderr_log(0), fs::path());
}

TEST_F(OutputTest, AnUnfinishedLineIsShownWhenItWaitsTooLong) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, console, {}, 2);
  output.begin_round(0);
  send(output, 0, Stream::kStdout, "name? ");
  EXPECT_EQ(out_.read_now(), "");
  io_.run();  // until the timer has flushed it
  EXPECT_EQ(out_.read_now(), "[rank 0] name? ");
  send(output, 0, Stream::kStdout, "yes\n");
  EXPECT_EQ(out_.read_now(), "yes\n");
}

TEST_F(OutputTest, AnotherRanksLineDoesNotGlueToAnUnfinishedOne) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, console, {}, 2);
  output.begin_round(0);
  send(output, 0, Stream::kStdout, "10%");
  io_.run();
  send(output, 1, Stream::kStdout, "line\n");
  send(output, 0, Stream::kStdout, "\r20%\n");
  EXPECT_EQ(out_.read_now(), "[rank 0] 10%\n[rank 1] line\n[rank 0] 20%\n");
}

TEST_F(OutputTest, ALineWhoseRestLiesUnreadIsNotTorn) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, console, {}, 2);
  output.set_unread([](int rank, Stream) { return rank == 0; });
  output.begin_round(0);
  send(output, 0, Stream::kStdout, "first ");
  send(output, 1, Stream::kStdout, "prompt");
  io_.run();  // until the timer has looked at both
  EXPECT_EQ(out_.read_now(), "[rank 1] prompt");
  io_.restart();
  send(output, 0, Stream::kStdout, "half\nnext ");
  EXPECT_EQ(out_.read_now(), "\n[rank 0] first half\n");
  output.set_unread({});
  io_.run();  // the wait for the next line's end began anew
  EXPECT_EQ(out_.read_now(), "[rank 0] next ");
}

TEST_F(OutputTest, UpdatesByCarriageReturnKeepTheirPrefix) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, console, {}, 1);
  output.begin_round(0);
  send(output, 0, Stream::kStdout, "\r10%\r20%");
  io_.run();
  io_.restart();
  send(output, 0, Stream::kStdout, "\r30%");
  io_.run();
  EXPECT_EQ(out_.read_now(), "[rank 0] 20%\r[rank 0] 30%");
}

TEST_F(OutputTest, JsonHasWholeLinesOnStdout) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  console.set_rules({.json = true});
  WorkerOutput output(io_, console, {}, 1);
  output.begin_round(0);
  send(output, 0, Stream::kStderr, "a \"b\"\nrest");
  output.end_of_stream(0, Stream::kStderr);
  EXPECT_EQ(out_.read_now(), R"({"event":"output","rank":0,"stream":"stderr","line":"a \"b\""})"
                             "\n"
                             R"({"event":"output","rank":0,"stream":"stderr","line":"rest"})"
                             "\n");
  EXPECT_EQ(err_.read_now(), "");
}

TEST_F(OutputTest, TheTailIsTheLastTwentyLines) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, console, {}, 1);
  output.begin_round(0);
  for (int i = 0; i < 30; ++i) send(output, 0, Stream::kStderr, "line " + std::to_string(i) + "\n");
  send(output, 0, Stream::kStderr, std::string(5000, 'x'));
  const std::vector<std::string> tail = output.stderr_tail(0);
  ASSERT_EQ(tail.size(), 20u);
  EXPECT_EQ(tail.front(), "line 11");
  EXPECT_EQ(tail.back(), std::string(1024, 'x'));
  output.begin_round(1);
  EXPECT_TRUE(output.stderr_tail(0).empty());
}

// A failing seed reproduces.
TEST_F(OutputTest, LinesOfManyRanksInAnyPiecesStayWhole) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Pipe out;
    ConsoleWriter console(io_, out.ends[1], err_.ends[1]);
    WorkerOutput output(io_, console, {}, 3);
    output.begin_round(0);
    std::map<int, std::string> sent, left;
    for (int rank = 0; rank < 3; ++rank) {
      for (unsigned i = 0; i < 30; ++i) left[rank] += std::string(random() % 40, static_cast<char>('a' + rank)) + "\n";
    }
    while (!left.empty()) {
      const int rank = static_cast<int>(random() % 3);
      if (!left.count(rank)) continue;
      const std::size_t size = std::min<std::size_t>(1 + random() % 30, left[rank].size());
      send(output, rank, Stream::kStdout, left[rank].substr(0, size));
      sent[rank] += left[rank].substr(0, size);
      left[rank].erase(0, size);
      if (left[rank].empty()) left.erase(rank);
    }
    std::map<int, std::string> got;
    std::istringstream shown(out.read_now());
    for (std::string line; std::getline(shown, line);) {
      ASSERT_TRUE(line.starts_with("[rank ")) << "seed " << seed;
      got[line[6] - '0'] += line.substr(9) + "\n";
    }
    EXPECT_EQ(got, sent) << "seed " << seed;
  }
}

TEST_F(OutputTest, ASlowConsoleLosesWholeLinesAndSaysHowMany) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  const std::string line = std::string(999, 'x') + "\n";
  constexpr std::uint64_t kLines = 4000;  // 4 MB into a pipe of 64 KiB and a queue of 1 MiB
  for (std::uint64_t i = 0; i < kLines; ++i) console.lines(Stream::kStdout, line);
  EXPECT_GT(console.dropped_lines(), 2000u);
  std::string text;
  for (std::string piece = out_.read_now(); !piece.empty(); piece = out_.read_now()) {
    text += piece;
    io_.poll();
  }
  std::istringstream shown(text);
  std::uint64_t whole = 0, notices = 0;
  for (std::string got; std::getline(shown, got);) {
    if (got == std::string(999, 'x')) {
      ++whole;
    } else {
      ++notices;
      EXPECT_EQ(got, "ddprun: " + std::to_string(console.dropped_lines()) +
                         " lines were not shown here: the console is slower than the output");
    }
  }
  EXPECT_EQ(whole + console.dropped_lines(), kLines);
  EXPECT_EQ(notices, 1u);
}

TEST_F(OutputTest, ALineWhoseHeadWasLeftOutIsLeftOutWhole) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  console.set_rules({.rank_prefix = false});
  WorkerOutput output(io_, console, {}, 1);
  output.begin_round(0);
  console.lines(Stream::kStdout, std::string(ConsoleWriter::kQueueBytes + 70000, 'x') + "\n");  // more than pipe and queue hold
  const std::string long_head(500000, 'h');
  send(output, 0, Stream::kStdout, long_head);
  io_.run_one();  // the timer: there is no room for the head
  EXPECT_EQ(console.dropped_lines(), 1u);
  std::string text;
  const auto read_all = [&] {
    for (std::string piece = out_.read_now(); !piece.empty(); piece = out_.read_now()) {
      text += piece;
      io_.poll();
    }
  };
  read_all();
  send(output, 0, Stream::kStdout, "tail\nnext\n");
  read_all();
  EXPECT_TRUE(text.ends_with("x\nddprun: 1 line was not shown here: the console is slower than the output\nnext\n"))
      << text.substr(text.size() - 200);
}

TEST_F(OutputTest, AClosedConsoleIsNoError) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, console, folder_, 1);
  output.begin_round(0);
  out_.close_reader();
  send(output, 0, Stream::kStdout, "one\n");
  send(output, 0, Stream::kStdout, "two\n");
  EXPECT_EQ(contents(folder_ / "round-000/rank-00000/stdout.log"), "one\ntwo\n");
  EXPECT_EQ(console.dropped_lines(), 0u);
}

TEST_F(OutputTest, TheDescriptionOfThePipeStaysBlocking) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  console.line(Stream::kStdout, "x");
  EXPECT_EQ(::fcntl(out_.ends[1], F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(OutputTest, FilesAndNullAreWrittenAtOnce) {
  const int file = ::open((folder_ / "console").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  {
    ConsoleWriter console(io_, file, null);
    for (int i = 0; i < 3; ++i) console.line(Stream::kStdout, "line");
    console.line(Stream::kStderr, "gone");
    EXPECT_EQ(contents(folder_ / "console"), "line\nline\nline\n");
  }
  ::close(file);
  ::close(null);
}

TEST_F(OutputTest, OnePipeForBothKeepsTheOrder) {
  ConsoleWriter console(io_, out_.ends[1], out_.ends[1]);
  console.line(Stream::kStdout, "1");
  console.line(Stream::kStderr, "2");
  console.line(Stream::kStdout, "3");
  EXPECT_EQ(out_.read_now(), "1\n2\n3\n");
}

TEST_F(OutputTest, AFullDiskOfTheLogsIsSaidOnce) {
  const fs::path rank = folder_ / "round-000/rank-00000";
  fs::create_directories(rank);
  fs::create_symlink("/dev/full", rank / "stdout.log");
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, console, folder_, 1);
  output.begin_round(0);
  for (int i = 0; i < 3; ++i) send(output, 0, Stream::kStdout, "x\n");
  EXPECT_EQ(out_.read_now(), "[rank 0] x\n[rank 0] x\n[rank 0] x\n");
  const std::string said = err_.read_now();
  EXPECT_NE(said.find("No space left on device"), std::string::npos);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

}  // namespace
}  // namespace ddprun
