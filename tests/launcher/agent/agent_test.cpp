// Tests real agents with real workers. run_agent() runs in a child process of the test. The workers are /bin/sh scripts, or
// copies of this test program that use the worker channel. The agent's observer and the workers write each event as a line to
// one FIFO. The test waits for these lines, so it does not need to sleep.
#include "launcher/agent/agent.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/check.hpp"
#include "common/base/error.hpp"
#include "common/channel/codec.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/output/console_writer.hpp"

namespace ddprun {
namespace {

constexpr int kTimeoutMs = 60000;  // limit of each wait in milliseconds; only a failing test reaches it

// ---- a worker with a channel: this test program acts as a worker if an environment variable requests it ----

class ChannelWorker {
 public:
  void send(const channel::FromWorker& message) {
    const std::string frame = channel::encode(message);
    [[maybe_unused]] const ssize_t n = ::send(3, frame.data(), frame.size(), MSG_NOSIGNAL);
  }
  channel::FromAgent receive() {
    for (;;) {
      if (auto message = decoder_.next_from_agent()) return *message;
      std::byte chunk[4096];
      const ssize_t n = ::recv(3, chunk, sizeof chunk, 0);
      if (n <= 0) ::_exit(99);
      decoder_.feed(std::span(chunk, static_cast<std::size_t>(n)));
    }
  }
  channel::StoreReply store(channel::StoreRequest request) {
    send(request);
    return std::get<channel::StoreReply>(receive());
  }

 private:
  channel::Decoder decoder_;
};

void note(const std::string& line) {
  const int fd = ::open(std::getenv("FIFO"), O_WRONLY);
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t n = ::write(fd, text.data(), text.size());
  ::close(fd);
}

[[noreturn]] void run_channel_worker(const std::string& part) {
  const int rank = std::atoi(std::getenv("RANK"));
  const int progress_count = std::getenv("TWICE") != nullptr ? 2 : 1;
  ChannelWorker agent;
  agent.send(channel::Hello{.protocol = 1, .version = "test", .pid = ::getpid()});
  if (part == "save" || part == "surprise") {
    ::signal(SIGTERM, SIG_IGN);
    if (part == "surprise") {  // rank 0 waits for a key that rank 1 sets, so both run when rank 0 reports progress
      const auto op = rank == 0 ? channel::StoreRequest::Op::kGet : channel::StoreRequest::Op::kSet;
      agent.store({.op = op, .keys = {"here"}, .timeout_ms = kTimeoutMs});
      for (int step = 10; rank == 0 && step < 10 + progress_count; ++step) agent.send(channel::Progress{.step = step});
    }
    note("ready " + std::to_string(rank));
    if (std::get<channel::Stop>(agent.receive()).mode != channel::Stop::Mode::kSave) ::_exit(1);
    agent.send(channel::StopReady{10 + rank});
    const auto step = std::get<channel::StopAt>(agent.receive()).step;
    note("saved at " + std::to_string(step));
    ::_exit(85);
  }
  if (part == "lost-peer") {
    if (rank == 1) {
      note("victim " + std::to_string(::getpid()));
      ::pause();
    }
    agent.store({.op = channel::StoreRequest::Op::kGet, .keys = {"killed"}, .timeout_ms = 0});
    note("survivor");
    std::get<channel::Stop>(agent.receive());  // the agent sends the Stop message before it sends SIGTERM
    channel::WorkerError error;
    error.kind = channel::ErrorKind::kLostPeer;
    error.message = "peer 1 is gone";
    agent.send(error);
    ::_exit(1);
  }
  if (part == "usage") {
    channel::WorkerError error;
    error.kind = channel::ErrorKind::kUsage;
    error.message = "no such dataset";
    error.exit_code = 2;
    agent.send(error);
    ::_exit(2);
  }
  if (part == "store") {
    channel::StoreRequest request;
    request.keys = {"key"};
    if (rank == 0) {
      request.op = channel::StoreRequest::Op::kSet;
      request.value = std::string("\0\xff", 2);
      ::_exit(agent.store(request).status == channel::StoreReply::Status::kOk ? 0 : 1);
    }
    request.op = channel::StoreRequest::Op::kGet;
    request.timeout_ms = kTimeoutMs;
    if (agent.store(request).value != std::string("\0\xff", 2)) ::_exit(2);
    request.keys = {"absent"};
    request.timeout_ms = 1;
    ::_exit(agent.store(request).status == channel::StoreReply::Status::kTimeout ? 0 : 3);
  }
  ::_exit(98);
}

// This initialization runs before main(). So if the process is a worker, it never starts the tests.
[[maybe_unused]] const bool kNotAWorker = [] {
  if (const char* part = std::getenv("DDPRUN_TEST_CHANNEL_WORKER");
      part != nullptr && std::getenv("DDPRUN_CHANNEL") != nullptr) {
    run_channel_worker(part);
  }
  return true;
}();

// ---- the observer writes events as lines ----

class LineObserver : public RunObserver {
 public:
  void on(const RunEvent& event) override {
    if (std::getenv("THROW_AT_ROUND") != nullptr && std::holds_alternative<RoundStarted>(event)) {
      throw std::runtime_error("an exception that is not an Error");
    }
    if (std::getenv("THROW_AT_END") != nullptr && std::holds_alternative<RunEnded>(event)) throw std::bad_alloc();
    const auto* reported = std::get_if<WorkerReported>(&event);
    if (reported != nullptr && std::holds_alternative<channel::Progress>(reported->message))
      check(false, "progress is not expected");
    if (const auto* round = std::get_if<RoundStarted>(&event)) note("round " + std::to_string(round->round));
    if (const auto* started = std::get_if<WorkerStarted>(&event)) {
      note("started " + std::to_string(started->rank) + " " + std::to_string(started->pid));
    }
    if (const auto* ended = std::get_if<WorkerEnded>(&event)) {
      note("ended " + std::to_string(ended->rank) + " " + describe(ended->status));
    }
    if (const auto* failed = std::get_if<RoundFailed>(&event)) {
      std::string tail;
      for (const std::string& line : failed->first.stderr_tail) tail += "|" + line;
      note("failed " + std::string(name_of(failed->first.cause)) + " rank " + std::to_string(failed->first.rank) + " " +
           failed->first.message + tail);
    }
    if (const auto* end = std::get_if<RunEnded>(&event)) {
      note("end " + std::to_string(end->exit_code));
      note("why " + end->why);
    }
  }
};

// ---- the test fixture ----

// A pidfd of a process that is not our child. It must be opened while that process exists.
class Pidfd {
 public:
  explicit Pidfd(pid_t pid) : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  Pidfd(Pidfd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Pidfd() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool valid() const { return fd_ >= 0; }
  bool ends() const {
    pollfd polled{fd_, POLLIN, 0};
    return fd_ >= 0 && ::poll(&polled, 1, kTimeoutMs) == 1;
  }

 private:
  int fd_;
};

class AgentTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/ddprun-agent-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
    // The FIFO is opened for reading and writing, so that read() never returns end of file, even if no process writes.
    fifo_ = ::open((folder_ / "fifo").c_str(), O_RDWR | O_CLOEXEC);
    plan_.kind = Plan::Kind::kProgram;
    plan_.signals_to_handle = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    plan_.run_id = "none";
    plan_.shutdown_timeout = std::chrono::hours(1);
    files_.log_root = folder_ / "logs";
    std::filesystem::create_directories(files_.log_root);
  }
  void TearDown() override {
    if (agent_ > 0) {
      ::kill(agent_, SIGKILL);
      ::waitpid(agent_, nullptr, 0);
    }
    ::close(fifo_);
    std::filesystem::remove_all(folder_);
  }

  void start(const std::string& script, int workers = 1) {
    std::string argument;  // torchrun's template requires "$$" for a dollar sign
    for (const char c : script) argument += c == '$' ? "$$" : std::string(1, c);
    plan_.command = {"/bin/sh", "-c", argument};
    plan_.nproc_per_node = workers;
    start_plan();
  }
  void start_channel_workers(const std::string& part, int workers) {
    plan_.kind = Plan::Kind::kTrain;
    plan_.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
    plan_.nproc_per_node = workers;
    channel_part_ = part;
    start_plan();
  }
  void start_plan() {
    agent_ = ::fork();
    ASSERT_GE(agent_, 0);
    if (agent_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setenv("FIFO", (folder_ / "fifo").c_str(), 1);
    if (!channel_part_.empty()) ::setenv("DDPRUN_TEST_CHANNEL_WORKER", channel_part_.c_str(), 1);
    for (const std::string& name : variables_) ::setenv(name.c_str(), "1", 1);
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
    int code = 99;
    try {
      const MakeObservers make_observers = [](const AgentAccess&) {
        std::vector<std::unique_ptr<RunObserver>> observers;
        observers.push_back(std::make_unique<LineObserver>());
        return AgentObservers{.observers = std::move(observers)};
      };
      code = run_agent(plan_, files_, make_observers, std::nullopt,
                       [](int exit_code) { note("left with " + std::to_string(exit_code)); });
    } catch (const Error& error) {
      code = static_cast<int>(error.code());
    } catch (const std::exception&) {
      code = 98;
    }
    ::_exit(code);
  }

  // Waits for a line that starts with `beginning` and returns the remainder of that line. A line is returned only once. Lines
  // of different writers may arrive in any order.
  std::string wait_for(const std::string& beginning) {
    for (;;) {
      for (std::size_t newline; (newline = buffer_.find('\n')) != std::string::npos; buffer_.erase(0, newline + 1)) {
        lines_.push_back(buffer_.substr(0, newline));
        seen_ += lines_.back() + "\n";
      }
      const auto found =
          std::find_if(lines_.begin(), lines_.end(), [&](const auto& line) { return line.starts_with(beginning); });
      if (found != lines_.end()) {
        const std::string rest = found->substr(beginning.size());
        lines_.erase(found);
        return rest;
      }
      pollfd polled{fifo_, POLLIN, 0};
      if (::poll(&polled, 1, kTimeoutMs) != 1) {
        ADD_FAILURE() << "no line starts with '" << beginning << "'; the lines are:\n" << seen_;
        return "";
      }
      char chunk[4096];
      const ssize_t n = ::read(fifo_, chunk, sizeof chunk);
      if (n > 0) buffer_.append(chunk, static_cast<std::size_t>(n));
    }
  }
  pid_t wait_for_pid(const std::string& beginning) { return static_cast<pid_t>(std::atoi(wait_for(beginning).c_str())); }

  // Returns the agent's exit code, or 128 + N after signal N. If the agent does not end, this function kills it, and the test
  // fails.
  int exit_code() {
    if (!Pidfd(agent_).ends()) {
      ADD_FAILURE() << "the agent did not end; its lines were:\n" << seen_;
      ::kill(agent_, SIGKILL);
    }
    int status = 0;
    ::waitpid(agent_, &status, 0);
    agent_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void signal_agent(int signal) { ::kill(agent_, signal); }

  std::filesystem::path folder_;
  int fifo_ = -1;
  pid_t agent_ = -1;
  Plan plan_;
  AgentFiles files_;
  std::string channel_part_;
  std::vector<std::string> variables_;  // additional environment variables of the agent, each set to 1
  std::string buffer_;                  // bytes of an incomplete line
  std::vector<std::string> lines_;      // lines that wait_for() has not returned yet
  std::string seen_;
};

// A shell command that starts a daemon. The daemon writes its pid, has its own session, and ignores all signals except
// SIGKILL. The processes that started the daemon have exited, so it has no living parent in the worker.
constexpr const char* kDaemon = "setsid sh -c 'trap \"\" TERM INT HUP; echo daemon $$ >$FIFO; while :; do sleep 1000; done' & ";

TEST_F(AgentTest, AllWorkersSucceed) {
  start("exit 0", 8);
  EXPECT_EQ(exit_code(), 0);
  EXPECT_EQ(wait_for("left with "), "0");
}

TEST_F(AgentTest, TheWorkerExitCodeIsReturned) {
  start("[ $RANK = 1 ] && { echo oops >&2; exit 7; }; sleep 1000", 3);
  EXPECT_EQ(wait_for("failed "), "exit_code rank 1 |oops");
  EXPECT_EQ(wait_for("left with "), "7");
  EXPECT_EQ(exit_code(), 7);
}

TEST_F(AgentTest, ASignalIs128PlusItsNumber) {
  start("kill -KILL $$");
  EXPECT_EQ(wait_for("failed "), "signal rank 0 ");
  EXPECT_EQ(exit_code(), 137);
}

TEST_F(AgentTest, RestartsUntilItWorks) {
  plan_.max_restarts = 2;
  start("echo restart $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS >$FIFO; [ $TORCHELASTIC_RESTART_COUNT = 1 ]");
  EXPECT_EQ(wait_for("restart "), "0 of 2");
  EXPECT_EQ(wait_for("restart "), "1 of 2");
  EXPECT_EQ(exit_code(), 0);
  EXPECT_TRUE(std::filesystem::exists(files_.log_root / "round-001"));
}

TEST_F(AgentTest, RoundNumbersContinue) {
  std::filesystem::create_directories(files_.log_root / "round-004");
  start("exit 0");
  EXPECT_EQ(wait_for("round "), "5");
  EXPECT_EQ(exit_code(), 0);
}

TEST_F(AgentTest, AnExhaustedBudgetEndsTheJob) {
  plan_.max_restarts = 1;
  start("exit 5");
  wait_for("failed ");
  wait_for("failed ");
  EXPECT_EQ(exit_code(), 5);
}

// Exceptions of other types than Error come from libraries or the system, for example std::bad_alloc. These exceptions must
// end the job too.
TEST_F(AgentTest, AForeignExceptionEndsTheJob) {
  variables_ = {"THROW_AT_ROUND"};
  start("echo started >$FIFO; sleep 1000");
  EXPECT_EQ(wait_for("end "), "89");
  EXPECT_EQ(wait_for("left with "), "89");
  EXPECT_EQ(exit_code(), 89);
}

// After an internal error in a callback, the agent must still serve the channels. Only then can the workers agree on a step and
// save.
TEST_F(AgentTest, WorkersSaveAfterAFailedCheck) {
  start_channel_workers("surprise", 2);
  EXPECT_EQ(wait_for("saved at "), "11");
  EXPECT_EQ(wait_for("saved at "), "11");
  EXPECT_EQ(wait_for("end "), "89");
  const std::string why = wait_for("why ");
  EXPECT_TRUE(why.starts_with("internal error at tests/launcher/agent/agent_test.cpp:")) << why;
  EXPECT_NE(why.find(": progress is not expected;"), std::string::npos) << why;
  EXPECT_EQ(exit_code(), 89);
}

// The second error occurs while the agent handles the first error. The agent must then end immediately and not wait for the
// workers.
TEST_F(AgentTest, ASecondInternalErrorEndsTheJobImmediately) {
  variables_ = {"TWICE"};
  start_channel_workers("surprise", 2);
  EXPECT_EQ(wait_for("end "), "89");
  EXPECT_TRUE(wait_for("why ").starts_with("internal error at tests/launcher/agent/agent_test.cpp:"));
  EXPECT_EQ(exit_code(), 89);
}

// The agent exits without reporting a clean shutdown to the guardian. So the guardian must complete report.json.
TEST_F(AgentTest, GuardianCompletesTheReportAfterAnObserverError) {
  files_.report = folder_ / "report.json";
  std::ofstream(files_.report) << R"({"rounds":[1],"exit":null})";
  variables_ = {"THROW_AT_END"};
  start("exit 0");
  EXPECT_EQ(exit_code(), 98);
  EXPECT_FALSE(nlohmann::json::parse(std::ifstream(files_.report))["exit"].is_null());
}

TEST_F(AgentTest, AMissingProgramFailsImmediately) {
  plan_.command = {"/nonexistent/program"};
  plan_.max_restarts = 3;
  start_plan();
  EXPECT_EQ(wait_for("failed "), "spawn rank 0 cannot start '/nonexistent/program': No such file or directory");
  EXPECT_EQ(exit_code(), 2);
}

TEST_F(AgentTest, ThePythonErrorFileIsTheMessage) {
  start(R"(echo '{"message":{"message":"ValueError: bad"}}' >$TORCHELASTIC_ERROR_FILE; exit 1)");
  EXPECT_EQ(wait_for("failed "), "exception rank 0 ValueError: bad");
  EXPECT_EQ(exit_code(), 1);
}

TEST_F(AgentTest, ErrorFileOfTheFirstCauseIsForwarded) {
  const std::string to = folder_ / "ours.json";
  ::setenv("TORCHELASTIC_ERROR_FILE", to.c_str(), 1);
  start(R"(echo '{"message":{"message":"ValueError: bad"}}' >$TORCHELASTIC_ERROR_FILE; kill -KILL $$)");
  ::unsetenv("TORCHELASTIC_ERROR_FILE");
  EXPECT_EQ(exit_code(), 137);
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(to)),
            nlohmann::json::parse(R"({"message":{"message":"ValueError: bad","errorCode":-9}})"));
}

TEST_F(AgentTest, RedirectedStderrIsReadAfterAFailure) {
  files_.layout = LogLayout::kAttempts;
  plan_.output.redirects.default_streams = Streams::kBoth;
  start("echo fd $(readlink /proc/$$/fd/1) >$FIFO; echo out; echo why >&2; exit 3");
  EXPECT_EQ(wait_for("fd "), (files_.log_root / "attempt_0/0/stdout.log").string());
  EXPECT_EQ(wait_for("failed "), "exit_code rank 0 |why");
  EXPECT_EQ(exit_code(), 3);
}

TEST_F(AgentTest, WorkersHaveASessionAndOnlyTheirDescriptors) {
  const int inherited = ::open("/dev/null", O_RDONLY);  // no O_CLOEXEC, so a child process would inherit it
  start(
      "read line && exit 1; echo fds $(cd /proc/$$/fd && echo *) >$FIFO; echo ids $(cut -d' ' -f5,6 /proc/$$/stat) $$ >$FIFO; "
      "echo oom $(cat /proc/$$/oom_score_adj) >$FIFO");
  EXPECT_EQ(wait_for("fds ").substr(0, 5), "0 1 2");
  std::istringstream ids(wait_for("ids "));
  int group = 0;
  int session = 0;
  int pid = -1;
  ids >> group >> session >> pid;
  EXPECT_EQ(group, pid);
  EXPECT_EQ(session, pid);
  EXPECT_GE(std::atoi(wait_for("oom ").c_str()), 500);
  EXPECT_EQ(exit_code(), 0);
  ::close(inherited);
}

TEST_F(AgentTest, ScriptsReceiveTheSignalOfTheAgent) {
  start("trap 'echo got INT >$FIFO; exit 0' INT; echo ready >$FIFO; while :; do sleep 1000 & wait; done", 2);
  wait_for("ready");
  wait_for("ready");
  signal_agent(SIGINT);
  EXPECT_EQ(wait_for("got "), "INT");
  EXPECT_EQ(wait_for("got "), "INT");
  EXPECT_EQ(exit_code(), 130);
}

TEST_F(AgentTest, ASecondSignalKillsWorkersThatIgnoreIt) {
  start("trap '' INT TERM; echo ready $$ >$FIFO; while :; do sleep 1000; done", 2);
  const Pidfd one(wait_for_pid("ready "));
  const Pidfd other(wait_for_pid("ready "));
  signal_agent(SIGINT);
  signal_agent(SIGQUIT);  // not a second SIGINT, because the kernel may merge it with a SIGINT that is still pending
  EXPECT_EQ(exit_code(), 130);
  EXPECT_TRUE(one.ends());
  EXPECT_TRUE(other.ends());
}

TEST_F(AgentTest, TheShutdownTimeoutEndsInSigkill) {
  plan_.shutdown_timeout = std::chrono::milliseconds(50);
  start("trap '' TERM; echo ready >$FIFO; while :; do sleep 1000; done");
  wait_for("ready");
  signal_agent(SIGTERM);
  EXPECT_EQ(wait_for("ended "), "0 signal 9 (SIGKILL)");
  EXPECT_EQ(exit_code(), 143);
}

TEST_F(AgentTest, UserSignalsAreForwardedToWorkers) {
  start("trap 'echo got USR1 >$FIFO; exit 0' USR1; echo ready >$FIFO; while :; do sleep 1000 & wait; done");
  wait_for("ready");
  signal_agent(SIGUSR1);
  wait_for("got USR1");
  EXPECT_EQ(exit_code(), 0);
}

// ---- no process remains ----

TEST_F(AgentTest, ADaemonOfAWorkerEndsWithTheRound) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo.go").c_str(), 0600), 0);
  start(std::string(kDaemon) + "read line <$FIFO.go; exit 0");
  const Pidfd daemon(wait_for_pid("daemon "));
  ASSERT_TRUE(daemon.valid());
  std::ofstream(folder_ / "fifo.go") << "go\n";
  EXPECT_EQ(exit_code(), 0);
  EXPECT_TRUE(daemon.ends());
}

TEST_F(AgentTest, AKilledAgentLeavesNoProcessAndACompleteReport) {
  files_.report = folder_ / "report.json";
  std::ofstream(files_.report) << R"({"rounds":[1],"exit":null})";
  start(std::string(kDaemon) + "trap '' TERM; echo worker $$ >$FIFO; while :; do sleep 1000; done");
  const Pidfd daemon(wait_for_pid("daemon "));
  const pid_t worker_pid = wait_for_pid("worker ");
  const Pidfd worker(worker_pid);
  // The worker's parent is the guardian, a process between agent and workers.
  std::ifstream stat("/proc/" + std::to_string(worker_pid) + "/stat");
  std::string pid, name, state;
  int guardian_pid = 0;
  stat >> pid >> name >> state >> guardian_pid;
  const Pidfd guardian(guardian_pid);
  ASSERT_TRUE(daemon.valid() && worker.valid() && guardian.valid());

  signal_agent(SIGKILL);
  EXPECT_EQ(exit_code(), 137);
  EXPECT_TRUE(worker.ends());
  EXPECT_TRUE(daemon.ends());
  EXPECT_TRUE(guardian.ends());
  const auto report = nlohmann::json::parse(std::ifstream(files_.report));
  EXPECT_EQ(report["exit"]["code"], 137);
  EXPECT_EQ(report["exit"]["why"], "the agent was killed");
  EXPECT_EQ(report["rounds"].size(), 1u);
}

TEST_F(AgentTest, GuardianKeepsTheReportOfACleanExit) {
  files_.report = folder_ / "report.json";
  std::ofstream(files_.report) << R"({"exit":null})";
  start("exit 0");
  EXPECT_EQ(exit_code(), 0);
  EXPECT_TRUE(nlohmann::json::parse(std::ifstream(files_.report))["exit"].is_null());
}

TEST_F(AgentTest, ADyingWrapperLeavesItsChildTimeToSave) {
  const auto go = folder_ / "fifo.go";
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  // The FIFO is opened for reading and writing. If it were opened for reading only, open() would wait for a process at the
  // other end.
  const int fd = ::open(go.c_str(), O_RDWR | O_CLOEXEC);
  start("(trap '' TERM; echo ready >$FIFO; read line <$FIFO.go; echo child saved >$FIFO); true");
  const Pidfd wrapper(wait_for_pid("started 0 "));
  wait_for("ready");
  signal_agent(SIGTERM);
  EXPECT_TRUE(wrapper.ends());
  EXPECT_EQ(::write(fd, "go\n", 3), 3);
  wait_for("child saved");
  EXPECT_EQ(wait_for("ended "), "0 signal 15 (SIGTERM)");  // reported only after all of the worker's processes have ended
  EXPECT_EQ(exit_code(), 143);
  ::close(fd);
}

TEST_F(AgentTest, AKilledGuardianEndsTheJob) {
  start(std::string(kDaemon) + "echo parent $PPID >$FIFO; sleep 1000");
  const Pidfd daemon(wait_for_pid("daemon "));
  ::kill(wait_for_pid("parent "), SIGKILL);
  EXPECT_EQ(exit_code(), 89);
  EXPECT_TRUE(daemon.ends());
}

TEST_F(AgentTest, ATakenMasterPortIsAUsageError) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::listen(listener, 1), 0);  // binds the socket to a free port
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const int port =
      (static_cast<unsigned char>(address.__ss_padding[0]) << 8) + static_cast<unsigned char>(address.__ss_padding[1]);
  EXPECT_THROW(HeldPort::exactly(port), UsageError);
  plan_.master_port = port;
  start("exit 0");
  EXPECT_EQ(exit_code(), 2);
  ::close(listener);

  const HeldPort held = HeldPort::any();
  EXPECT_GT(held.port(), 0);
  EXPECT_NE(HeldPort::any().port(), held.port());
}

// An agent that holds a port also binds an abstract socket named @ddprun/port/PORT. The worker reads its inode from
// /proc/net/unix. A different inode after the restart would show that the port was released between the rounds.
TEST_F(AgentTest, ARequestedPortIsHeldAcrossARestart) {
  plan_.master_port = HeldPort::any().port();
  plan_.max_restarts = 1;
  start(
      "while read -r a b c d e f socket name; do "
      "[ \"$name\" = @ddprun/port/$MASTER_PORT ] && echo held by $socket >$FIFO; done </proc/net/unix; "
      "exit $((1 - TORCHELASTIC_RESTART_COUNT))");
  const std::string first = wait_for("held by ");
  EXPECT_EQ(wait_for("held by "), first);
  EXPECT_EQ(exit_code(), 0);
}

// ---- workers with a channel ----

TEST_F(AgentTest, ChannelWorkersSaveAtTheAgreedStep) {
  start_channel_workers("save", 2);
  wait_for("ready ");
  wait_for("ready ");
  signal_agent(SIGTERM);
  EXPECT_EQ(wait_for("saved at "), "11");
  EXPECT_EQ(wait_for("saved at "), "11");
  EXPECT_EQ(exit_code(), 85);
}

TEST_F(AgentTest, TheKilledWorkerIsTheCause) {
  start_channel_workers("lost-peer", 2);
  const pid_t victim = wait_for_pid("victim ");
  wait_for("survivor");
  ::kill(victim, SIGKILL);
  EXPECT_EQ(wait_for("failed "), "signal rank 1 ");
  EXPECT_EQ(exit_code(), 137);
}

TEST_F(AgentTest, UsageErrorsAreNotRestarted) {
  plan_.max_restarts = 3;
  start_channel_workers("usage", 1);
  EXPECT_EQ(wait_for("failed "), "usage rank 0 no such dataset");
  EXPECT_EQ(exit_code(), 2);
}

TEST_F(AgentTest, TheStoreIsServed) {
  start_channel_workers("store", 2);
  EXPECT_EQ(exit_code(), 0);
}

}  // namespace
}  // namespace ddprun
