// Tests when a round counts as hanging, which rank is the culprit, the values of --hang-timeout, and the stack tools.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "common/base/error.hpp"
#include "launcher/hang/hang_verdict.hpp"
#include "launcher/hang/hang_watch.hpp"
#include "launcher/hang/process_summary.hpp"
#include "launcher/hang/stack_tool.hpp"
#include "launcher/leftovers/stuck_workers.hpp"
#include "launcher/plan/plan_restarts.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using channel::Phase;
using channel::Position;
using channel::Stage;
using std::chrono::milliseconds;
using std::chrono::seconds;

// ---- the watch ----

class HangWatchTest : public testing::Test {
 protected:
  static HangWatch::Time at(seconds time) { return HangWatch::Time(time); }
  static seconds deadline_of(const HangWatch& watch) {
    return std::chrono::duration_cast<seconds>(watch.deadline().value().time_since_epoch());
  }
  static HangLimits all(seconds limit) {
    HangLimits limits{.watch = true, .given = {}};
    limits.given.fill(limit);
    return limits;
  }
  static HangWatch started_watch(const HangLimits& limits, int workers, HangWatch::Others others = HangWatch::Others::kNone) {
    HangWatch watch(limits);
    watch.begin_round(workers, Activity::kStep, others, at(seconds(0)));
    return watch;
  }
};

TEST_F(HangWatchTest, ARoundHangsWhenEveryRankIsLate) {
  HangWatch watch = started_watch(all(seconds(10)), 2);
  EXPECT_EQ(deadline_of(watch), seconds(10));
  watch.stepped(1, at(seconds(4)));
  EXPECT_EQ(deadline_of(watch), seconds(14)) << "rank 0 may be waiting for it";
  watch.gone(1);
  EXPECT_EQ(deadline_of(watch), seconds(10));
  watch.gone(0);
  EXPECT_FALSE(watch.deadline());
}

TEST_F(HangWatchTest, ALongSaveExtendsTheDeadlineOfAllRanks) {
  HangLimits limits = all(seconds(10));
  limits.given[static_cast<std::size_t>(Activity::kSave)] = seconds(300);
  HangWatch watch = started_watch(limits, 2);
  watch.entered(0, Activity::kSave, at(seconds(1)));
  EXPECT_EQ(deadline_of(watch), seconds(301));
  watch.entered(0, Activity::kStep, at(seconds(200)));
  EXPECT_EQ(deadline_of(watch), seconds(210));
}

TEST_F(HangWatchTest, UnobservedRanksGetTheSaveLimit) {
  HangLimits limits = all(seconds(10));
  limits.given[static_cast<std::size_t>(Activity::kSave)] = seconds(300);
  EXPECT_EQ(deadline_of(started_watch(limits, 2, HangWatch::Others::kUnobserved)), seconds(300));
}

// During a background save, the rank is in kSave only for the milliseconds in which the state is copied. During the last save
// of a run, it is in kSave until the checkpoint is written completely. So the short times of background saves must not lower
// the time limit for kSave.
TEST_F(HangWatchTest, ASavePauseDoesNotSetTheSaveLimit) {
  constexpr seconds kTenMinutes{600};
  HangWatch watch = started_watch({.watch = true, .given = {}}, 1);
  for (int i = 1; i <= 3; ++i) {
    watch.entered(0, Activity::kSave, at(seconds(i)));
    watch.entered(0, Activity::kStep, at(seconds(i)));
    watch.on_checkpoint_written(milliseconds(50));
  }
  watch.entered(0, Activity::kSave, at(seconds(4)));
  EXPECT_EQ(deadline_of(watch), seconds(4) + kTenMinutes) << "a disk may stall";
  watch.entered(0, Activity::kSave, at(seconds(100)));
  EXPECT_EQ(deadline_of(watch), seconds(100) + kTenMinutes) << "it reports that it writes";
  watch.on_checkpoint_written(seconds(120));
  EXPECT_EQ(deadline_of(watch), seconds(100) + 10 * seconds(120)) << "ten times the longest";
}

TEST_F(HangWatchTest, LimitsAreLearnedFromTheLongestSuccess) {
  HangWatch watch = started_watch({.watch = true, .given = {}}, 1);
  EXPECT_EQ(deadline_of(watch), seconds(600)) << "the first step may compile, load, warm up";
  watch.stepped(0, at(seconds(1)));
  EXPECT_EQ(deadline_of(watch), seconds(61)) << "never less than a minute";
  watch.stepped(0, at(seconds(31)));
  EXPECT_EQ(deadline_of(watch), seconds(331)) << "ten times the longest step";
  EXPECT_TRUE(watch.silence_of(0, at(seconds(100))).learned);
  EXPECT_EQ(watch.silence_of(0, at(seconds(100))).lasted, seconds(69));
  // The limit that was measured in one round applies in later rounds too. So a slow step in a later round is not a hang.
  watch.begin_round(1, Activity::kStep, HangWatch::Others::kNone, at(seconds(1000)));
  EXPECT_EQ(deadline_of(watch), seconds(1300));
}

TEST_F(HangWatchTest, UnfinishedActivitiesTeachNoLimit) {
  HangWatch watch({.watch = true, .given = {}});
  watch.begin_round(1, Activity::kStart, HangWatch::Others::kNone, at(seconds(0)));
  watch.entered(0, Activity::kStart, at(seconds(1)));  // LibTorch is loaded, but the data and the checkpoint are not
  EXPECT_EQ(deadline_of(watch), seconds(601));
  watch.entered(0, Activity::kStep, at(seconds(11)));
  watch.entered(0, Activity::kEvaluate, at(seconds(11)));  // the resumed run starts with an evaluation that was still due
  watch.entered(0, Activity::kStep, at(seconds(12)));
  EXPECT_EQ(deadline_of(watch), seconds(612)) << "the first step is still to come";
  watch.begin_round(1, Activity::kStart, HangWatch::Others::kNone, at(seconds(1000)));
  EXPECT_EQ(deadline_of(watch), seconds(1100)) << "ten times the ten seconds of the start before";
}

TEST_F(HangWatchTest, OwnDelaysAreForgivenAndNotLearned) {
  HangWatch watch = started_watch({.watch = true, .given = {}}, 1);
  watch.stepped(0, at(seconds(1)));
  watch.forgive(at(seconds(5000)));
  EXPECT_EQ(deadline_of(watch), seconds(5060));
  watch.stepped(0, at(seconds(5001)));
  EXPECT_EQ(deadline_of(watch), seconds(5061));
}

TEST_F(HangWatchTest, RemoteLimitsMayBeLonger) {
  HangWatch watch = started_watch({.watch = true, .given = {}}, 1);
  watch.stepped(0, at(seconds(1)));
  EXPECT_EQ(watch.max_remote_limit(), seconds(600));
  EXPECT_EQ(started_watch(all(seconds(2)), 1).max_remote_limit(), seconds(2)) << "given limits apply to all nodes";
}

TEST_F(HangWatchTest, WithoutWatchThereIsNoDeadline) {
  HangWatch watch = started_watch({}, 2);
  watch.stepped(0, at(seconds(1)));
  watch.stepped(7, at(seconds(1)));
  EXPECT_FALSE(watch.deadline());
}

// ---- the verdict ----

HangObservation rank_in(int rank, Stage stage, std::int64_t step, Phase phase = Phase::kRunning) {
  return {.rank = rank, .process_state = 'S', .queried = true, .position = Position{phase, step, stage}};
}

TEST(JudgeHang, AStoppedProcessIsTheCulprit) {
  const HangVerdict verdict = judge_hang(std::vector<HangObservation>{
      rank_in(0, Stage::kBackward, 17), {.rank = 1, .process_state = 'T', .queried = true}, rank_in(2, Stage::kBackward, 17)});
  EXPECT_EQ(verdict.culprits, std::vector{1});
  EXPECT_EQ(verdict.certainty, HangVerdict::Certainty::kSure);
  EXPECT_EQ(verdict.why, "is stopped (SIGSTOP or a debugger); ranks 0, 2 wait in the all-reduce of the gradients of step 18");
}

TEST(JudgeHang, AnUnresponsiveProcessIsTheCulprit) {
  const HangVerdict verdict =
      judge_hang(std::vector<HangObservation>{{.rank = 0, .process_state = 'D', .queried = true}, rank_in(1, Stage::kLoss, 4)});
  EXPECT_EQ(verdict.culprits, std::vector{0});
  EXPECT_EQ(verdict.why, "does not answer its agent; rank 1 waits in the sum of the loss of step 5");
}

TEST(JudgeHang, OtherwiseTheRankFurthestBehindIsTheCulprit) {
  EXPECT_EQ(judge_hang(std::vector<HangObservation>{rank_in(0, Stage::kBackward, 17), rank_in(1, Stage::kOptimizer, 16)}).why,
            "is in the optimizer of step 17; rank 0 waits in the all-reduce of the gradients of step 18");
  EXPECT_EQ(
      judge_hang(std::vector<HangObservation>{rank_in(4, Stage::kLoading, 1406), rank_in(5, Stage::kBackward, 1406)}).culprits,
      std::vector{4});
  EXPECT_EQ(judge_hang(std::vector<HangObservation>{rank_in(0, Stage::kLoss, 20, Phase::kEvaluating),
                                                    rank_in(1, Stage::kForward, 20, Phase::kEvaluating)})
                .why,
            "is in the evaluation after step 20; rank 0 waits in the sum of the evaluation after step 20");
  // After a step, a rank evaluates, saves, and then starts the next step. The wait at the end of the run comes last.
  EXPECT_EQ(
      judge_hang(std::vector<HangObservation>{rank_in(0, Stage::kLoading, 20, Phase::kSaving), rank_in(1, Stage::kMeeting, 20)})
          .why,
      "is in the checkpoint after step 20; rank 1 waits for all ranks at the end of the run");
  EXPECT_EQ(judge_hang(std::vector<HangObservation>{rank_in(0, Stage::kBackward, 20),
                                                    rank_in(1, Stage::kLoading, 20, Phase::kEvaluating)})
                .culprits,
            std::vector{1});
  // A batch norm over all ranks is part of the forward and backward pass. So it comes before the all-reduce of the gradients.
  EXPECT_EQ(judge_hang(std::vector<HangObservation>{rank_in(0, Stage::kBatchNorm, 20), rank_in(1, Stage::kForward, 20)}).why,
            "is in the forward or backward pass of step 21; rank 0 waits in a batch norm over all ranks of step 21");
  EXPECT_EQ(judge_hang(std::vector<HangObservation>{rank_in(0, Stage::kBatchNorm, 20), rank_in(1, Stage::kBackward, 20)}).why,
            "is in a batch norm over all ranks of step 21; rank 1 waits in the all-reduce of the gradients of step 21");
  // Ranks compare their states before they start the next step.
  EXPECT_EQ(judge_hang(std::vector<HangObservation>{rank_in(0, Stage::kComparing, 20), rank_in(1, Stage::kOptimizer, 19)}).why,
            "is in the optimizer of step 20; rank 0 waits in the comparison of the states after step 20");
  EXPECT_EQ(judge_hang(std::vector<HangObservation>{rank_in(0, Stage::kForward, 20), rank_in(1, Stage::kComparing, 20)}).why,
            "is in the comparison of the states after step 20");
  EXPECT_EQ(judge_hang(std::vector<HangObservation>{rank_in(0, Stage::kLoading, 0, Phase::kJoining),
                                                    rank_in(1, Stage::kLoading, 0, Phase::kStarting)})
                .culprits,
            std::vector{1});
}

TEST(JudgeHang, IfAllWaitAtOnePointItIsAGuess) {
  const HangVerdict verdict =
      judge_hang(std::vector<HangObservation>{rank_in(2, Stage::kBackward, 9), rank_in(3, Stage::kBackward, 9)});
  EXPECT_EQ(verdict.culprits, std::vector{2});
  EXPECT_EQ(verdict.certainty, HangVerdict::Certainty::kGuess);
  EXPECT_EQ(verdict.why, "is in the all-reduce of the gradients of step 10, like all other ranks on this node");
  // In the forward pass a rank waits for no other rank, so a rank that is still in the forward pass is certainly late.
  EXPECT_EQ(judge_hang(std::vector<HangObservation>{rank_in(2, Stage::kForward, 9), rank_in(3, Stage::kForward, 9)}).certainty,
            HangVerdict::Certainty::kSure);
}

TEST(JudgeHang, ScriptsAreJudgedByProcessState) {
  const HangVerdict verdict =
      judge_hang(std::vector<HangObservation>{{.rank = 0, .process_state = 'S'}, {.rank = 1, .process_state = 'R'}});
  EXPECT_EQ(verdict.culprits, std::vector{0});
  EXPECT_EQ(verdict.certainty, HangVerdict::Certainty::kGuess);
}

// ---- --hang-timeout ----

HangLimits hang_limits_from(const std::string& text, WorkerKind workers = WorkerKind::kTrainer) {
  const Setting setting{text, "flag --hang-timeout"};
  return hang_limits_of(&setting, workers);
}

TEST(HangTimeout, DefaultWatchesATrainJsonButNotAScript) {
  EXPECT_EQ(describe(hang_limits_of(nullptr, WorkerKind::kTrainer)), "learned from the run");
  EXPECT_EQ(describe(hang_limits_of(nullptr, WorkerKind::kScript)), "off");
  EXPECT_EQ(describe(hang_limits_from("auto")), "learned from the run");
  EXPECT_EQ(describe(hang_limits_from("off")), "off");
}

TEST(HangTimeout, SecondsApplyToAllButTheStart) {
  EXPECT_EQ(describe(hang_limits_from("1.5")),
            "step 1.5 s, evaluate 1.5 s, save 1.5 s, end 1.5 s, others learned from the run");
  EXPECT_EQ(describe(hang_limits_from("60,save=300,start=900")), "start 900 s, step 60 s, evaluate 60 s, save 300 s, end 60 s");
  EXPECT_EQ(describe(hang_limits_from("evaluate=5")), "evaluate 5 s, others learned from the run");
  EXPECT_EQ(hang_limits_from("2", WorkerKind::kScript).given[static_cast<std::size_t>(Activity::kStep)], seconds(2));
}

TEST(HangTimeout, AnythingElseIsRefused) {
  for (const char* text :
       {"", "0", "-1", "soon", "step", "step=", "steps=3", "1,,2", "nan", "1e9", "0.9", "step=0.5", "60,save=0.99"}) {
    EXPECT_THROW(hang_limits_from(text), UsageError) << text;
  }
  for (const char* text : {"auto", "step=5", "x"})
    EXPECT_THROW(hang_limits_from(text, WorkerKind::kScript), UsageError) << text;
}

// ---- evidence ----

TEST(ProcessSummary, ShowsKernelState) {
  const std::string summary = process_summary(::getpid());
  EXPECT_TRUE(summary.starts_with("state R (running), ")) << summary;
  EXPECT_NE(summary.find(" of CPU time"), std::string::npos) << summary;
  EXPECT_EQ(process_summary(-1), "");
}

TEST(StackTool, FramesAreParsedFromItsOutput) {
  const std::string gdb =
      "warning: whatever\n[New LWP 12]\n0x00007f in pause ()\n#0  0x00007f in pause () from libc\n#1  0x01 in main "
      "()\n[Inferior "
      "1 detached]\n";
  EXPECT_EQ(frames_in(gdb), (std::vector<std::string>{"#0  0x00007f in pause () from libc", "#1  0x01 in main ()"}));
  EXPECT_EQ(frames_in("Process 7: python train.py\nThread 7 (idle): \"MainThread\"\n    step (train.py:3)\n").size(), 2U);
  EXPECT_EQ(frames_in("ptrace: Operation not permitted.\n").size(), 0U);
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "#" + std::to_string(i) + std::string(500, 'x') + "\n";
  EXPECT_EQ(frames_in(deep).size(), 40U);
  EXPECT_LT(frames_in(deep).front().size(), 210U);
}

TEST(StackTool, GdbSkipsItsStartupFiles) {
  const auto command = stack_command({"gdb", "/usr/bin/gdb"}, 4711);
  EXPECT_EQ(command.at(1), "-nx");
  EXPECT_EQ(stack_command({"eu-stack", "/usr/bin/eu-stack"}, 4711).back(), "4711");
}

// Behaves like a gdb that is killed while it attaches: the process stays stopped and is never continued. This happened in one
// of sixty runs.
constexpr const char* kDebuggerThatStopsAndDies = "#!/bin/sh\nkill -STOP \"$3\"\nkill -KILL $$\n";

// An idle process that runs until the end of the test.
class Idler {
 public:
  Idler() : pid_(::fork()) {
    if (pid_ == 0) {
      while (true) ::pause();
    }
  }
  ~Idler() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Idler(const Idler&) = delete;
  Idler& operator=(const Idler&) = delete;
  void stop() const {
    ::kill(pid_, SIGSTOP);
    wait_until_stopped();
  }
  // Waits until the process has stopped. SIGSTOP takes effect only when the kernel schedules the process again.
  void wait_until_stopped() const {
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
  }
  long pid() const { return pid_; }

 private:
  pid_t pid_;
};

char state_after_debugger_death(const Idler& idler) {
  const test::TemporaryFolder folder;
  const auto tool = folder.path() / "eu-stack";
  std::ofstream(tool) << kDebuggerThatStopsAndDies;
  std::filesystem::permissions(tool, std::filesystem::perms::owner_all);
  boost::asio::io_context io;
  std::vector<std::string> frames;
  const StackRun run(io, {"eu-stack", tool}, idler.pid(), seconds(60),
                     [&](std::vector<std::string> found) { frames = std::move(found); });
  io.run();
  EXPECT_EQ(frames, std::vector<std::string>{"no stack: eu-stack printed: "});
  return process_state(idler.pid());
}

TEST(StackTool, ADeadDebuggerLeavesTheProcessRunning) {
  const Idler idler;
  EXPECT_NE(state_after_debugger_death(idler), 'T');
}

// Traces a process. After the traced process dies, it stays a zombie. The kernel reports the exit to the tracer first, and to
// the parent only after the tracer has reaped the process. To the parent, the process seems to block in the kernel.
class Tracer {
 public:
  // Waits until a process has written its pid into `fifo`, and attaches to that process. Then writes one byte to `traces`: 'y'
  // if it has attached, 'n' if not.
  Tracer(const std::filesystem::path& fifo, int traces) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::alarm(20);  // ends this process if the test does not
    long subject = 0;
    std::ifstream(fifo) >> subject;
    const char held = ::ptrace(PTRACE_SEIZE, static_cast<pid_t>(subject), nullptr, nullptr) == 0 ? 'y' : 'n';
    if (::write(traces, &held, 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  ~Tracer() { end(); }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

TEST(StackTool, ASlowToolBlocksNothing) {
  const Idler idler;
  const test::TemporaryFolder folder;
  const auto tool = folder.path() / "eu-stack", fifo = folder.path() / "fifo", number = folder.path() / "number";
  std::ofstream(tool) << "#!/bin/sh\nkill -STOP \"$3\"\necho $$ > " << number.string() << "\necho $$ > " << fifo.string()
                      << "\nexec sleep 1000\n";
  std::filesystem::permissions(tool, std::filesystem::perms::owner_all);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Tracer tracer(fifo, ends[1]);
  boost::asio::io_context io;
  auto run = std::make_unique<StackRun>(io, StackTool{"eu-stack", tool}, idler.pid(), seconds(60), [](const auto&) {});
  char held = 'n';
  ASSERT_EQ(::read(ends[0], &held, 1), 1);
  ::close(ends[0]);
  ::close(ends[1]);
  if (held != 'y') GTEST_SKIP() << "this user may not trace";
  idler.wait_until_stopped();
  run.reset();
  long pid = 0;
  std::ifstream(number) >> pid;
  pollfd end{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
  ASSERT_GE(end.fd, 0) << "it was waited for";
  EXPECT_EQ(::poll(&end, 1, -1), 1);
  ::close(end.fd);
  EXPECT_EQ(process_state(pid), 'Z') << "killed, and not waited for";
  EXPECT_EQ(process_state(idler.pid()), 'T');
  tracer.end();
  io.run();
  EXPECT_NE(process_state(pid), 'Z');
  EXPECT_NE(process_state(idler.pid()), 'T') << "it continues after the tool's end";
}

TEST(StackTool, AStoppedProcessStaysStopped) {
  const Idler idler;
  idler.stop();
  EXPECT_EQ(state_after_debugger_death(idler), 'T');
}

}  // namespace
}  // namespace ddprun
