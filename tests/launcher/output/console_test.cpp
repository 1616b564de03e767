// Tests the console output of a run, event by event.
#include "launcher/output/console.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "tests/launcher/observed.hpp"

namespace ddprun {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

class ConsoleTest : public testing::Test {
 protected:
  ConsoleTest() {
    if (::pipe2(out_, O_CLOEXEC) != 0 || ::pipe2(err_, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    plan_.title = "small";
    plan_.device = "cpu";
    plan_.run_dir = "/runs/small";
  }
  ~ConsoleTest() override {
    for (const int fd : {out_[0], out_[1], err_[0], err_[1]}) ::close(fd);
  }

  // Sends the events of a run with one failure to the console.
  void play() {
    boost::asio::io_context io;
    ConsoleWriter writer(io, out_[1], err_[1]);
    Observed<Console> console(plan_, ConsoleFacts{{}, "/runs/small/report.json"}, writer);
    console.on(RunStarted{0, 2});
    console.on(RoundStarted{0, 0, 2, 0});
    console.on(WorkerStarted{0, 0, 11, 0});
    console.on(WorkerStarted{1, 1, 12, 0});
    for (int i = 1; i <= 50; ++i) {
      console.on(WorkerReported{0, channel::Progress{.step = i, .steps_total = 60, .epochs = 1}, kSecond * i / 10});
    }
    Failure failure;
    failure.cause = Cause::kSignal;
    failure.rank = 1;
    failure.pid = 12;
    failure.status = ExitStatus{0, SIGSEGV, false};
    failure.stderr_tail = {"oh no"};
    failure.log_path = "/runs/small/logs/x";
    failure.step = 50;
    console.on(RoundFailed{0, failure, {}, RoundFailed::Decision::kRestart, "restart 1 of 3", 6 * kSecond});
    console.on(WorkerReported{
        0, channel::EvalResult{.step = 60, .epoch = 0, .figures = {{"loss", 0.5}, {"accuracy", 0.875}}, .samples = 200},
        7 * kSecond});
    console.on(RunEnded{0, "done", 1, 83 * kSecond});
  }

  static std::string read_now(int fd) {
    char buffer[65536];
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    return {buffer, static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
  }

  Plan plan_;
  int out_[2], err_[2];
};

TEST_F(ConsoleTest, PlainOutputShowsTheRun) {
  play();
  const std::string out = read_now(out_[0]);
  EXPECT_TRUE(out.starts_with("small: 2 workers on cpu, run directory /runs/small\nrank 0 pid 11, rank 1 pid 12\n")) << out;
  EXPECT_NE(out.find("epoch 1/1, step 60: test accuracy 87.50 %, loss 0.5000 on 200 samples\n"), std::string::npos) << out;
  EXPECT_TRUE(out.ends_with("done: test accuracy 87.50 %, 50 steps in 1 min 23 s, 1 restart, /runs/small\n")) << out;
  EXPECT_EQ(read_now(err_[0]),
            "ddprun: rank 1 (pid 12) failed: signal 11 (SIGSEGV) at step 50\n"
            "    | oh no\n"
            "ddprun: its log is /runs/small/logs/x\n"
            "ddprun: restart 1 of 3; the round had lasted 0.0 s\n");
}

TEST_F(ConsoleTest, PlainProgressIsAtMostOneLineInTwoSeconds) {
  play();
  const std::string out = read_now(out_[0]);
  std::size_t lines = 0;
  for (std::size_t at = out.find("  step "); at != std::string::npos; at = out.find("  step ", at + 1)) ++lines;
  EXPECT_EQ(lines, 2u) << out;  // five seconds of progress give one line at 2 s and one line at 4 s
}

TEST_F(ConsoleTest, QuietShowsErrorsAndTheEnd) {
  plan_.verbosity = -1;
  play();
  EXPECT_EQ(read_now(out_[0]), "done: test accuracy 87.50 %, 50 steps in 1 min 23 s, 1 restart, /runs/small\n");
  EXPECT_NE(read_now(err_[0]).find("SIGSEGV"), std::string::npos);
}

TEST_F(ConsoleTest, JsonHasOneObjectPerLine) {
  plan_.json = true;
  play();
  const std::string out = read_now(out_[0]);
  EXPECT_TRUE(out.starts_with(R"({"event":"run_started","time_ns":0,"world_size":2})"
                              "\n"))
      << out;
  EXPECT_NE(out.find(R"("signal":11,"signal_name":"SIGSEGV")"), std::string::npos);
  EXPECT_EQ(read_now(err_[0]), "");
}

TEST_F(ConsoleTest, ASuccessfulScriptPrintsNothing) {
  plan_.kind = Plan::Kind::kPython;
  plan_.device.clear();
  plan_.run_dir.clear();
  boost::asio::io_context io;
  ConsoleWriter writer(io, out_[1], err_[1]);
  Observed<Console> console(plan_, ConsoleFacts{}, writer);
  console.on(RunStarted{0, 2});
  console.on(RoundStarted{0, 0, 2, 0});
  console.on(WorkerStarted{0, 0, 11, 0});
  console.on(WorkerStarted{1, 1, 12, 0});
  console.on(RunEnded{0, "done", 0, kSecond});
  EXPECT_EQ(read_now(out_[0]) + read_now(err_[0]), "");
}

TEST_F(ConsoleTest, DurationUsesASteadyClock) {
  boost::asio::io_context io;
  ConsoleWriter writer(io, out_[1], err_[1]);
  Observed<Console> console(plan_, ConsoleFacts{}, writer);
  console.on(RunStarted{1000 * kSecond, 1});
  RunEnded ended{0, "done", 0, 1000 * kSecond};  // the clock was set back during the run, so the start is later than the end
  ended.seconds = 83;
  console.on(ended);
  EXPECT_NE(read_now(out_[0]).find(" in 1 min 23 s"), std::string::npos);
}

TEST_F(ConsoleTest, ARepeatedLineIsShownOnce) {
  plan_.output.redirects.default_streams = Streams::kErr;
  boost::asio::io_context io;
  ConsoleWriter writer(io, out_[1], err_[1]);
  Observed<Console> console(plan_, ConsoleFacts{}, writer);
  console.on(RunStarted{0, 2});
  console.on(RoundStarted{0, 0, 2, 0});
  Failure failure;
  failure.rank = 0;
  failure.status = ExitStatus{89, 0, false};
  for (int i = 0; i < 9; ++i) {
    console.on(WorkerReported{0, channel::WorkerError{.message = "the disk is full", .fatal = false}, kSecond});
    failure.stderr_tail.emplace_back("warning: the disk is full");
  }
  failure.stderr_tail.emplace_back("giving up");
  console.on(RoundFailed{0, failure, {}, RoundFailed::Decision::kGiveUp, "why", kSecond});
  const std::string printed = read_now(err_[0]);
  EXPECT_NE(printed.find("    | warning: the disk is full    (9 times)\n    | giving up\n"), std::string::npos) << printed;
  std::size_t times = 0;
  for (std::size_t at = printed.find("the disk is full"); at != std::string::npos;
       at = printed.find("the disk is full", at + 1))
    ++times;
  EXPECT_EQ(times, 2u) << printed;
}

class ScriptConsoleTest : public ConsoleTest {
 protected:
  ScriptConsoleTest() {
    plan_.kind = Plan::Kind::kPython;
    plan_.title = "train.py";
    plan_.command = {"/usr/bin/python3", "-u", "jobs/train.py", "--lr", "1"};
    plan_.device.clear();
    plan_.run_dir.clear();
    first_.cause = Cause::kException;
    first_.rank = first_.local_rank = 1;
    first_.pid = 12;
    first_.host = "node7";
    first_.status = ExitStatus{.code = 1};
    first_.time_ns = 5 * kSecond;
    first_.message = "ValueError: x\nmore of it";
    first_.call_stack = "Traceback (most recent call last):\n  File \"train.py\"\nValueError: x\n";
    first_.error_file = "/logs/1/error.json";
    first_.stderr_tail = {"ValueError: x"};
  }
  // Returns the output of a round with three ranks. Rank 0 exits with 0, rank 1 fails, and rank 2 is stopped.
  std::string fail(RoundFailed::Decision decision = RoundFailed::Decision::kGiveUp) {
    boost::asio::io_context io;
    ConsoleWriter writer(io, out_[1], err_[1]);
    Observed<Console> console(plan_, ConsoleFacts{}, writer);
    console.on(RunStarted{0, 3});
    console.on(RoundStarted{0, 0, 3, 0});
    for (int rank = 0; rank < 3; ++rank) console.on(WorkerStarted{rank, rank, 11 + rank, 0});
    console.on(WorkerEnded{0, 11, {}, false, 2 * kSecond});
    Failure stopped;
    stopped.cause = Cause::kStopped;
    stopped.rank = stopped.local_rank = 2;
    stopped.pid = 13;
    stopped.host = "node7";
    stopped.status = ExitStatus{.signal = SIGTERM};
    stopped.time_ns = 6 * kSecond;
    console.on(RoundFailed{0, first_, {stopped}, decision, "why not", 7 * kSecond});
    EXPECT_EQ(read_now(out_[0]), "");
    return read_now(err_[0]);
  }

  Failure first_;
};

TEST_F(ScriptConsoleTest, TheSummaryHasTorchrunsForm) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(fail(),
            "ddprun: rank 1 (pid 12) failed: exit code 1: ValueError: x\n"
            "ddprun: rank 0 had ended before that with exit code 0, 3.0 s earlier\n"
            "================================================\n"
            "jobs/train.py FAILED\n"
            "------------------------------------------------\n"
            "Failures:\n"
            "  <NO_OTHER_FAILURES>\n"
            "------------------------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[0]:\n"
            "  time      : 1970-01-01_00:00:05\n"
            "  host      : node7\n"
            "  rank      : 1 (local_rank: 1)\n"
            "  exitcode  : 1 (pid: 12)\n"
            "  error_file: /logs/1/error.json\n"
            "  traceback : Traceback (most recent call last):\n"
            "    File \"train.py\"\n"
            "  ValueError: x\n"
            "================================================\n");
}

TEST_F(ScriptConsoleTest, ASignalIsShownLikeTorchrun) {
  first_.cause = Cause::kSignal;
  first_.status = ExitStatus{.signal = SIGSEGV};
  first_.message = first_.call_stack = first_.error_file = "";
  const std::string printed = fail();
  EXPECT_NE(
      printed.find(
          "  exitcode  : -11 (pid: 12) (SIGSEGV)\n  error_file: <N/A>\n  traceback : Signal 11 (SIGSEGV) received by PID 12\n"),
      std::string::npos)
      << printed;
}

TEST_F(ScriptConsoleTest, WithoutAnErrorFileTheLastStderrLineIsTheReason) {
  first_.cause = Cause::kExitCode;
  first_.message = first_.call_stack = first_.error_file = "";
  const std::string printed = fail();
  EXPECT_TRUE(printed.starts_with("ddprun: rank 1 (pid 12) failed: exit code 1: ValueError: x\nddprun: rank 0")) << printed;
}

TEST_F(ScriptConsoleTest, HiddenStderrIsShown) {
  plan_.output.redirects.default_streams = Streams::kErr;
  first_.stderr_tail = {"on its way", "ValueError: x"};
  first_.log_path = "/logs/1/stderr.log";
  EXPECT_EQ(fail().find("    | "), std::string::npos);  // the call stack is not repeated, since the summary contains it
  first_.call_stack.clear();
  const std::string printed = fail();
  EXPECT_NE(printed.find("\n    | on its way\nddprun: its log is /logs/1/stderr.log\n"), std::string::npos) << printed;
}

TEST_F(ScriptConsoleTest, QuietAndRestartsHaveNoSummary) {
  EXPECT_EQ(fail(RoundFailed::Decision::kRestart),
            "ddprun: rank 1 (pid 12) failed: exit code 1: ValueError: x\n"
            "ddprun: rank 0 had ended before that with exit code 0, 3.0 s earlier\n"
            "ddprun: why not; the round had lasted 0.0 s\n");
  plan_.verbosity = -1;
  EXPECT_EQ(fail().find("FAILED"), std::string::npos);
}

TEST_F(ScriptConsoleTest, VerboseShowsStoppedRanks) {
  plan_.verbosity = 1;
  const std::string printed = fail();
  EXPECT_NE(printed.find("ddprun: then rank 2: signal 15 (SIGTERM)\n"), std::string::npos) << printed;
  EXPECT_NE(printed.find("Failures:\n[1]:\n"), std::string::npos) << printed;
}

// A rank near the threshold becomes a straggler and recovers, every second. The console must not print a line each time.
TEST_F(ConsoleTest, StragglerLinesAppearOncePerMinute) {
  boost::asio::io_context io;
  ConsoleWriter writer(io, out_[1], err_[1]);
  Observed<Console> console(plan_, ConsoleFacts{}, writer);
  const auto straggles = [&](int rank, std::int64_t second, bool ended) {
    Straggler event;
    event.rank = rank;
    event.kind = StragglerKind::kCompute;
    event.ended = ended;
    event.step = second;
    event.time_ns = (100 + second) * kSecond;
    console.on(event);
  };
  for (int second = 0; second < 130; ++second) straggles(1, second, second % 2 == 1);
  straggles(0, 130, false);
  const std::string out = read_now(out_[0]);
  std::string steps;
  for (std::size_t at = 0; (at = out.find("keeps the others waiting", at)) != std::string::npos; ++at)
    steps += out.substr(out.rfind('\n', at) + 1, 6) + " " + (out.rfind(" no longer ", at) == at - 11 ? "ended, " : "starts, ");
  EXPECT_EQ(steps, "rank 1 starts, rank 1 ended, rank 1 starts, rank 1 ended, rank 1 starts, rank 1 ended, rank 0 starts, ")
      << out;
}

TEST_F(ConsoleTest, InputHintIsShownOnlyToReaders) {
  plan_.kind = Plan::Kind::kPython;
  plan_.device.clear();
  plan_.run_dir.clear();
  const auto lines_about_input = [this](WorkersInput input, const std::vector<std::string>& stderr_tail) {
    plan_.input = input;
    boost::asio::io_context io;
    ConsoleWriter writer(io, out_[1], err_[1]);
    Observed<Console> console(plan_, ConsoleFacts{}, writer);
    console.on(RunStarted{0, 2});
    Failure failure;
    failure.cause = Cause::kExitCode;
    failure.status = ExitStatus{1, 0, false};
    failure.stderr_tail = stderr_tail;
    console.on(RoundFailed{0, failure, {}, RoundFailed::Decision::kGiveUp, "", kSecond});
    const std::string text = read_now(err_[0]);
    int count = 0;
    for (std::size_t at = 0; (at = text.find("the workers' standard input is /dev/null", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  const std::vector<std::string> input{"    name = input()", "EOFError: EOF when reading a line"};
  EXPECT_EQ(lines_about_input(WorkersInput::kTerminalIsKept, {"ValueError: x"}), 0);
  EXPECT_EQ(lines_about_input(WorkersInput::kTerminalIsKept, input), 1);
  EXPECT_EQ(lines_about_input(WorkersInput::kTerminalIsKept, {"bdb.BdbQuit"}), 1);
  EXPECT_EQ(lines_about_input(WorkersInput::kOurs, input), 0) << "a file, which the script has read to its end";
  plan_.verbosity = 1;
  EXPECT_EQ(lines_about_input(WorkersInput::kTerminalIsKept, {}), 1);
}

// Two nodes start. The second node has joined, but is not ready yet.
TEST_F(ConsoleTest, ReadyAndJoinedNodesAreCountedSeparately) {
  boost::asio::io_context io;
  ConsoleWriter writer(io, out_[1], err_[1]);
  Observed<Console> console(plan_, ConsoleFacts{}, writer);
  using Kind = rendezvous::NodeNotice::Kind;
  const auto notice = [&](Kind kind, std::string text, int count) {
    console.on(NodesChanged{rendezvous::NodeNotice{.kind = kind, .text = std::move(text), .count = count, .of = 2}, 0});
  };
  notice(Kind::kJoined, "b", 2);
  notice(Kind::kWaiting, "for nodes", 1);
  notice(Kind::kWaiting, "for more nodes", 2);
  EXPECT_EQ(read_now(out_[0]), "node b joined; 2 of 2 nodes are present\nwaiting for nodes: 1 of 2 are ready\n");
}

}  // namespace
}  // namespace ddprun
