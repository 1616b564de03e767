// Tests the output of workers. Log files must contain the same bytes as the output, and the console must show whole lines. A
// slow console must not block workers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include "common/system/file_queue.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/worker_output.hpp"

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
  // Returns the bytes that are in the pipe now.
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

std::string text_in(const fs::path& file) {
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

  static void begin(WorkerOutput& output, const OutputRound& round, int workers) {
    output.begin_round(round);
    for (int worker = 0; worker < workers; ++worker) output.begin_worker(worker);
  }

  static void send(WorkerOutput& output, int rank, Stream stream, std::string_view text) {
    output.bytes(rank, stream, {text.data(), text.size()});
  }

  // Settings for a script, with torchrun's layout of log files.
  WorkerOutputSettings script(OutputPlan plan, int workers = 1) const {
    return {.log_root = folder_,
            .layout = LogLayout::kAttempts,
            .workers = workers,
            .kept = KeptFiles::kRequested,
            .script = std::move(plan)};
  }
  // Simulates a worker that writes its log file itself.
  static void write_by_itself(WorkerOutput& output, int worker, Stream stream, std::string_view text) {
    const int fd = output.take_descriptor(worker, stream);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(fd);
  }

  // Waits until all queued bytes are in the files and all file errors are reported.
  void settle() {
    files_.finish();
    io_.restart();
    io_.poll();
  }
  std::string contents(const fs::path& file) {
    settle();
    return text_in(file);
  }

  fs::path folder_;
  boost::asio::io_context io_;
  FileQueue files_{[this](FileQueue::Work then) { boost::asio::post(io_, std::move(then)); }};
  Pipe out_, err_;
};

TEST_F(OutputTest, ConsoleLinesArePrefixedFilesAreNot) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, {.log_root = folder_, .workers = 2});
  begin(output, {3}, 2);
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

TEST_F(OutputTest, BytesOfASingleWorkerPassImmediately) {
  int ours = -1, terminal = -1;
  const winsize size{.ws_row = 30, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  termios raw{};
  ::cfmakeraw(&raw);
  ASSERT_EQ(::openpty(&ours, &terminal, nullptr, &raw, &size), 0);
  ConsoleWriter console(io_, terminal, terminal);
  console.set_rules({.may_drop = false});
  const auto shown = [&] {
    char text[256];
    const ssize_t count = ::read(ours, text, sizeof text);
    return std::string(text, count > 0 ? static_cast<std::size_t>(count) : 0);
  };
  WorkerOutput output(io_, files_, console, script({}));
  begin(output, {0}, 1);
  ASSERT_TRUE(output.terminal_size(0, Stream::kStderr));
  EXPECT_EQ(output.terminal_size(0, Stream::kStderr)->ws_col, 100);
  send(output, 0, Stream::kStdout, "(Pdb) ");
  EXPECT_EQ(shown(), "(Pdb) ");
  send(output, 0, Stream::kStderr, "p");
  EXPECT_EQ(shown(), "p");
  console.line(Stream::kStderr, "ddprun: ours");  // our line must start on a new line
  EXPECT_EQ(shown(), "\nddprun: ours\n");
  output.end_of_stream(0, Stream::kStderr);
  EXPECT_EQ(output.stderr_tail(0), std::vector<std::string>{"p"});

  OutputPlan without;
  without.terminals = false;
  EXPECT_FALSE(WorkerOutput(io_, files_, console, script(without)).terminal_size(0, Stream::kStdout));
  WorkerOutput two(io_, files_, console, script({}, 2));
  begin(two, {0}, 2);
  EXPECT_TRUE(two.terminal_size(1, Stream::kStdout));
  send(two, 0, Stream::kStdout, "half a l");  // other workers' lines must not split this unfinished line
  send(two, 1, Stream::kStdout, "whole\n");
  EXPECT_EQ(shown(), "whole\n");
  ::close(ours);
  ::close(terminal);
}

TEST_F(OutputTest, RawScriptOutputIsUnchanged) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, script({}));
  begin(output, {0}, 1);
  EXPECT_EQ(output.take_descriptor(0, Stream::kStdout), -1);
  send(output, 0, Stream::kStdout, "\xff\r\n end");
  output.end_of_stream(0, Stream::kStdout);
  EXPECT_EQ(out_.read_now(), "\xff\r\n end");
  EXPECT_EQ(output.error_file(0), folder_ / "attempt_0/0/error.json");
  EXPECT_TRUE(fs::exists(folder_ / "attempt_0/0"));
  EXPECT_TRUE(fs::is_empty(folder_ / "attempt_0/0"));
  EXPECT_EQ(output.stderr_log(0), fs::path());
  EXPECT_TRUE(output.is_awaited(0, Stream::kStdout));
}

TEST_F(OutputTest, AnUnfinishedLineIsShownAfterATimeout) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, {.workers = 2});
  begin(output, {0}, 2);
  send(output, 0, Stream::kStdout, "name? ");
  EXPECT_EQ(out_.read_now(), "");
  io_.run();  // returns when the timer has flushed the line
  EXPECT_EQ(out_.read_now(), "[rank 0] name? ");
  send(output, 0, Stream::kStdout, "yes\n");
  EXPECT_EQ(out_.read_now(), "yes\n");
}

TEST_F(OutputTest, AnUnfinishedLineIsEndedBeforeOtherRanks) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, {.workers = 2});
  begin(output, {0}, 2);
  send(output, 0, Stream::kStdout, "10%");
  io_.run();
  send(output, 1, Stream::kStdout, "line\n");
  send(output, 0, Stream::kStdout, "\r20%\n");
  EXPECT_EQ(out_.read_now(), "[rank 0] 10%\n[rank 1] line\n[rank 0] 20%\n");
}

TEST_F(OutputTest, ALineWithUnreadRestIsNotSplit) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, {.workers = 2});
  output.set_unread([](int rank, Stream) { return rank == 0; });
  begin(output, {0}, 2);
  send(output, 0, Stream::kStdout, "first ");
  send(output, 1, Stream::kStdout, "prompt");
  io_.run();  // returns when the timer has flushed the unfinished lines of both streams
  EXPECT_EQ(out_.read_now(), "[rank 1] prompt");
  io_.restart();
  send(output, 0, Stream::kStdout, "half\nnext ");
  EXPECT_EQ(out_.read_now(), "\n[rank 0] first half\n");
  output.set_unread({});
  io_.run();  // returns when the timer has flushed the unfinished line "next "
  EXPECT_EQ(out_.read_now(), "[rank 0] next ");
}

TEST_F(OutputTest, UpdatesByCarriageReturnKeepTheirPrefix) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, {.workers = 1});
  begin(output, {0}, 1);
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
  WorkerOutput output(io_, files_, console, {.workers = 1});
  begin(output, {0}, 1);
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
  WorkerOutput output(io_, files_, console, {.workers = 1});
  begin(output, {0}, 1);
  for (int i = 0; i < 30; ++i) send(output, 0, Stream::kStderr, "line " + std::to_string(i) + "\n");
  send(output, 0, Stream::kStderr, std::string(5000, 'x'));
  const std::vector<std::string> tail = output.stderr_tail(0);
  ASSERT_EQ(tail.size(), 20u);
  EXPECT_EQ(tail.front(), "line 11");
  EXPECT_EQ(tail.back(), std::string(1024, 'x'));
  begin(output, {1}, 1);
  EXPECT_TRUE(output.stderr_tail(0).empty());
}

// A failure prints its seed, and the seed reproduces the failure.
TEST_F(OutputTest, LinesOfManyRanksInAnyPiecesStayWhole) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Pipe out;
    ConsoleWriter console(io_, out.ends[1], err_.ends[1]);
    WorkerOutput output(io_, files_, console, {.workers = 3});
    begin(output, {0}, 3);
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

TEST_F(OutputTest, ASlowTerminalDropsAndCountsWholeLines) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  const std::string line = std::string(999, 'x') + "\n";
  constexpr std::uint64_t kLines = 4000;  // 4 MB in total; the pipe can hold only 64 KiB, and the queue only 1 MiB
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

TEST_F(OutputTest, APipeGetsEveryLine) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  console.set_rules({});
  WorkerOutput output(io_, files_, console, {.log_root = folder_, .workers = 1});
  begin(output, {0}, 1);
  // Workers must wait for a slow console, even if the log file contains the same bytes.
  EXPECT_TRUE(output.is_awaited(0, Stream::kStdout));
  const std::string line = std::string(999, 'x') + "\n";
  for (int i = 0; i < 4000; ++i) send(output, 0, Stream::kStdout, line);
  EXPECT_TRUE(console.is_behind(Stream::kStdout));  // too many bytes are queued, so the agent stops reading the pipe
  bool caught_up = false;
  console.when_at_most(Stream::kStdout, 0, [&] { caught_up = true; });
  std::size_t bytes = 0;
  for (std::string piece = out_.read_now(); !piece.empty(); piece = out_.read_now()) {
    bytes += piece.size();
    io_.poll();
  }
  EXPECT_TRUE(caught_up);
  EXPECT_EQ(bytes, 4000 * (line.size() + std::string("[rank 0] ").size()));
  EXPECT_EQ(console.dropped_lines(), 0u);
}

TEST_F(OutputTest, ATerminalMayDropLoggedLines) {
  int terminal = -1, user = -1;
  ASSERT_EQ(::openpty(&user, &terminal, nullptr, nullptr, nullptr), 0);
  {
    ConsoleWriter console(io_, terminal, terminal);
    console.set_rules({.may_drop = true});
    WorkerOutput output(io_, files_, console, {.log_root = folder_, .workers = 1});
    begin(output, {0}, 1);
    EXPECT_FALSE(output.is_awaited(0, Stream::kStdout));
    console.set_rules({.may_drop = false});
    EXPECT_TRUE(output.is_awaited(0, Stream::kStdout));
  }
  ::close(user);
  ::close(terminal);
}

TEST_F(OutputTest, ALineWithADroppedHeadIsDropped) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, {.workers = 1, .script = OutputPlan{}});
  begin(output, {0}, 1);
  console.lines(Stream::kStdout, std::string(ConsoleWriter::kQueueBytes + 70000, 'x') + "\n");  // more than the queue can hold
  const std::string long_head(500000, 'h');
  send(output, 0, Stream::kStdout, long_head);
  io_.run_one();  // the timer fires, but the start of the line does not fit into the queue
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

TEST_F(OutputTest, AClosedConsoleIsNotAnError) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, {.log_root = folder_, .workers = 1});
  begin(output, {0}, 1);
  out_.close_reader();
  send(output, 0, Stream::kStdout, "one\n");
  send(output, 0, Stream::kStdout, "two\n");
  EXPECT_EQ(contents(folder_ / "round-000/rank-00000/stdout.log"), "one\ntwo\n");
  EXPECT_EQ(console.dropped_lines(), 0u);
}

TEST_F(OutputTest, TheSharedPipeStaysBlocking) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  console.line(Stream::kStdout, "x");
  EXPECT_EQ(::fcntl(out_.ends[1], F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(OutputTest, RegularFilesAndDevNullGetEverything) {
  const int file = ::open((folder_ / "console").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  {
    ConsoleWriter console(io_, file, null);
    for (int i = 0; i < 3; ++i) console.line(Stream::kStdout, "line");
    console.line(Stream::kStderr, "gone");
  }
  EXPECT_EQ(contents(folder_ / "console"), "line\nline\nline\n");
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

TEST_F(OutputTest, AFullLogDiskIsReportedOnce) {
  const fs::path rank = folder_ / "round-000/rank-00000";
  fs::create_directories(rank);
  fs::create_symlink("/dev/full", rank / "stdout.log");
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, {.log_root = folder_, .workers = 1});
  begin(output, {0}, 1);
  for (int i = 0; i < 3; ++i) send(output, 0, Stream::kStdout, "x\n");
  EXPECT_EQ(out_.read_now(), "[rank 0] x\n[rank 0] x\n[rank 0] x\n");
  settle();
  const std::string printed = err_.read_now();
  EXPECT_NE(printed.find("No space left on device"), std::string::npos);
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 1);
}

// Simulates a file system that stalls for a while: the log file is a FIFO without a reader.
TEST_F(OutputTest, AStalledLogFileBlocksOnlyItsStream) {
  const fs::path rank = folder_ / "round-000/rank-00000";
  fs::create_directories(rank);
  ASSERT_EQ(::mkfifo((rank / "stdout.log").c_str(), 0600), 0);
  const int reader = ::open((rank / "stdout.log").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, {.log_root = folder_, .workers = 2});
  begin(output, {0}, 2);
  const std::string line = std::string(1023, 'x') + "\n";
  int sent = 0;
  for (; output.has_space(0, Stream::kStdout); ++sent) send(output, 0, Stream::kStdout, line);
  EXPECT_GT(sent, 256);
  EXPECT_LT(sent, 2048);
  EXPECT_TRUE(output.has_space(1, Stream::kStdout));
  EXPECT_TRUE(output.has_space(0, Stream::kStderr));
  send(output, 1, Stream::kStdout, "other\n");

  bool has_space_again = false;
  output.when_space(0, Stream::kStdout, [&] { has_space_again = true; });
  std::size_t taken = 0;
  const auto work = boost::asio::make_work_guard(io_);
  std::string chunk(1 << 16, '\0');
  while (taken < static_cast<std::size_t>(sent) * line.size()) {
    pollfd ready{reader, POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 60000), 1);
    taken += static_cast<std::size_t>(std::max<ssize_t>(0, ::read(reader, chunk.data(), chunk.size())));
  }
  ::close(reader);
  settle();
  EXPECT_TRUE(has_space_again);
  EXPECT_TRUE(output.has_space(0, Stream::kStdout));
  EXPECT_EQ(contents(folder_ / "round-000/rank-00001/stdout.log"), "other\n");
}

// ---- options of a script ----

TEST_F(OutputTest, ARedirectedStreamGoesToItsFileOnly) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console, script({.redirects = {.default_streams = Streams::kBoth}}, 2));
  begin(output, {0}, 2);
  write_by_itself(output, 1, Stream::kStdout, "out\xff");
  write_by_itself(output, 1, Stream::kStderr, "first\nValueError: x");
  output.end_of_stream(1, Stream::kStderr);
  EXPECT_EQ(out_.read_now() + err_.read_now(), "");
  EXPECT_EQ(contents(folder_ / "attempt_0/1/stdout.log"), "out\xff");
  EXPECT_EQ(output.stderr_tail(1), (std::vector<std::string>{"first", "ValueError: x"}));
  EXPECT_EQ(output.stderr_log(1), folder_ / "attempt_0/1/stderr.log");
  EXPECT_FALSE(output.any_is_awaited());
}

TEST_F(OutputTest, ATeedStreamIsPrefixedOnTheConsole) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console,
                      script({.tee = {.default_streams = Streams::kNone, .by_local_rank = {{1, Streams::kBoth}}}}, 2));
  begin(output, {0}, 2);
  send(output, 0, Stream::kStdout, "raw\n");
  send(output, 1, Stream::kStdout, "one\n\nbad \xff");
  send(output, 1, Stream::kStderr, "oh\n");
  output.end_of_stream(1, Stream::kStdout);
  EXPECT_EQ(out_.read_now(), "raw\n[default1]:one\n[default1]:\n[default1]:bad \xff\n");
  EXPECT_EQ(err_.read_now(), "[default1]:oh\n");
  EXPECT_EQ(contents(folder_ / "attempt_0/1/stdout.log"), "one\n\nbad \xff");
  EXPECT_FALSE(fs::exists(folder_ / "attempt_0/0/stdout.log"));
  EXPECT_EQ(output.stderr_tail(1), std::vector<std::string>{"oh"});
}

TEST_F(OutputTest, TorchrunFoldersUseRestartsAndLocalRanks) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  WorkerOutput output(io_, files_, console,
                      script({.tee = {.default_streams = Streams::kOut}, .prefix_template = "$rank/${local_rank}> "}));
  const RankAssignment assignment{.rank = 5, .local_rank = 0};
  begin(output, {.round = 3, .restart_count = 2, .ranks = {assignment}}, 1);
  settle();
  std::ofstream(output.error_file(0)) << "stale";
  // Sets the file's mtime to 1970, so that the file is older than the next round.
  const timespec before[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, output.error_file(0).c_str(), before, 0), 0);
  send(output, 0, Stream::kStdout, "a\n");
  // This round starts without a restart, because only the membership of the job has changed.
  begin(output, {.round = 4, .restart_count = 2, .ranks = {assignment}}, 1);
  settle();
  EXPECT_FALSE(fs::exists(output.error_file(0)));
  send(output, 0, Stream::kStdout, "b\n");
  EXPECT_EQ(contents(folder_ / "attempt_2/0/stdout.log"), "a\nb\n");
  EXPECT_EQ(out_.read_now(), "5/0> a\n5/0> b\n");
}

TEST_F(OutputTest, TheLocalRanksFilterKeepsFilesAndTails) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  OutputPlan plan{.tee = {.default_streams = Streams::kOut}, .local_ranks_filter = std::set<int>{0}};
  WorkerOutput output(io_, files_, console, script(plan, 2));
  begin(output, {0}, 2);
  send(output, 0, Stream::kStdout, "shown\n");
  write_by_itself(output, 1, Stream::kStdout, "hidden\n");
  send(output, 1, Stream::kStderr, "why\nlast");
  output.end_of_stream(1, Stream::kStderr);
  EXPECT_EQ(out_.read_now(), "[default0]:shown\n");
  EXPECT_EQ(err_.read_now(), "");
  EXPECT_EQ(contents(folder_ / "attempt_0/1/stdout.log"), "hidden\n");
  EXPECT_FALSE(fs::exists(folder_ / "attempt_0/1/stderr.log"));
  EXPECT_EQ(output.stderr_tail(1), (std::vector<std::string>{"why", "last"}));
}

TEST_F(OutputTest, DuplicateFiltersCopyLinesOfTeedStreams) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  OutputPlan plan{.tee = {.default_streams = Streams::kNone, .by_local_rank = {{0, Streams::kOut}}},
                  .stdout_filters = {"apple", "fig"}};
  WorkerOutput output(io_, files_, console, script(plan, 2));
  begin(output, {0}, 2);
  send(output, 0, Stream::kStdout, "an app");
  io_.run();  // returns when the timer has flushed the unfinished line
  send(output, 0, Stream::kStdout, "le\npear\na fig");
  send(output, 1, Stream::kStdout, "apple of a raw stream\n");
  output.end_of_stream(0, Stream::kStdout);
  EXPECT_EQ(contents(folder_ / "attempt_0/filtered_stdout.log"), "[default0]:an apple\n[default0]:a fig\n");
  EXPECT_FALSE(fs::exists(folder_ / "attempt_0/filtered_stderr.log"));
}

TEST_F(OutputTest, LauncherLinesHaveReservedSpace) {
  ConsoleWriter console(io_, out_.ends[1], err_.ends[1]);
  const std::string line = std::string(999, 'x') + "\n";
  for (int i = 0; i < 3000; ++i) console.lines(Stream::kStderr, line);
  const auto dropped = console.dropped_lines();
  ASSERT_GT(dropped, 0u);
  console.line(Stream::kStderr, "ddprun: why it failed");
  EXPECT_EQ(console.dropped_lines(), dropped);
}

using Shown = OutputRoute::Shown;

TEST(OutputRoute, RedirectsAndTeesCombine) {
  const OutputPlan plan{.redirects = {.default_streams = Streams::kBoth},
                        .tee = {.default_streams = Streams::kNone, .by_local_rank = {{0, Streams::kErr}}}};
  EXPECT_EQ(route_of(plan, KeptFiles::kRequested, 0, Stream::kStdout).shown, Shown::kNo);
  EXPECT_EQ(route_of(plan, KeptFiles::kRequested, 0, Stream::kStderr).shown, Shown::kPrefixed);
  EXPECT_EQ(route_of(plan, KeptFiles::kRequested, 1, Stream::kStderr).shown, Shown::kNo);
  EXPECT_TRUE(route_of(plan, KeptFiles::kRequested, 0, Stream::kStdout).file);
}

TEST(OutputRoute, ARunDirectoryAlsoLogsRawOutput) {
  EXPECT_TRUE(route_of({}, KeptFiles::kAll, 0, Stream::kStdout).file);
  EXPECT_EQ(route_of({}, KeptFiles::kAll, 0, Stream::kStdout).shown, Shown::kRaw);
  EXPECT_FALSE(route_of({}, KeptFiles::kRequested, 0, Stream::kStdout).file);
}

TEST(OutputRoute, WithoutFilesEverythingIsRaw) {
  const OutputPlan plan{.redirects = {.default_streams = Streams::kOut}, .tee = {.default_streams = Streams::kErr}};
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    EXPECT_EQ(route_of(plan, KeptFiles::kNone, 0, stream).shown, Shown::kRaw);
    EXPECT_FALSE(route_of(plan, KeptFiles::kNone, 0, stream).file);
  }
}

TEST(LinePrefix, OnlyKnownNamesAreFilledIn) {
  const RankAssignment assignment{.rank = 9, .local_rank = 1, .role = "trainer"};
  EXPECT_EQ(line_prefix("[${role_name}${local_rank}]:", assignment, "node7"), "[trainer1]:");
  EXPECT_EQ(line_prefix("$rank@${hostname} ", assignment, "node7"), "9@node7 ");
  EXPECT_EQ(line_prefix("${x} $x $$ ${rank $ $", assignment, "h"), "${x} $x $ ${rank $ $");
  EXPECT_EQ(line_prefix("", assignment, "h"), "");
}

}  // namespace
}  // namespace ddprun
