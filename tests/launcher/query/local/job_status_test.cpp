// Tests the status of a job after each event. tests/whole_program/test_running_jobs.py tests the socket.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "launcher/query/local/control_client.hpp"
#include "launcher/query/local/control_folder.hpp"
#include "launcher/query/local/job_status.hpp"
#include "tests/launcher/observed.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

constexpr std::int64_t kNsOfASecond = 1'000'000'000;

class JobStatusTest : public testing::Test {
 protected:
  JobStatusTest() { plan_.title = "digits"; }
  json now(std::int64_t seconds = 100) const { return json::parse(status_.json({.now_ns = seconds * kNsOfASecond})); }
  void begin(int round, bool regroup = false, int group_rank = 0) {
    status_.on(RoundStarted{.round = round,
                            .restart_count = round,
                            .world_size = 4,
                            .time_ns = kNsOfASecond,
                            .workers_here = 2,
                            .group_rank = group_rank,
                            .nodes = 2,
                            .regroup = regroup});
  }
  void start(int rank, std::int64_t pid) { status_.on(WorkerStarted{rank, rank % 2, pid, kNsOfASecond}); }

  Plan plan_;
  Observed<JobStatus> status_{plan_, JobFacts{.agent = 7, .logs = "/logs", .report = {}}};
};

TEST_F(JobStatusTest, ReportsRoundsWorkersAndSteps) {
  EXPECT_EQ(now()["state"], "starting");
  status_.on(RunStarted{90 * kNsOfASecond, 4});
  begin(0);
  start(0, 70);
  start(1, 71);
  status_.on(WorkerReported{1, channel::PhaseChange{.phase = channel::Phase::kRunning, .step = 3}, 98 * kNsOfASecond});
  status_.on(WorkerReported{0, channel::Progress{.step = 5, .steps_total = 10, .epochs = 2, .loss = 0.5}, 99 * kNsOfASecond});
  const json status = now();
  EXPECT_EQ(status["state"], "running");
  EXPECT_EQ(status["seconds"], 10.0);
  EXPECT_EQ(status["progress"]["step"], 5);
  EXPECT_EQ(status["progress"]["loss"], 0.5);
  EXPECT_EQ(status["workers"][1]["phase"], "running");
  EXPECT_EQ(status["workers"][1]["step"], 3);
  EXPECT_EQ(status["workers"][1]["silent_s"], 2.0);
  EXPECT_EQ(status["workers"][0]["pid"], 70);
}

TEST_F(JobStatusTest, ProgressEndsWhenRankZeroMoves) {
  begin(0);
  start(0, 70);
  status_.on(WorkerReported{0, channel::Progress{.step = 5}, 99 * kNsOfASecond});
  begin(1, true, 1);
  EXPECT_TRUE(now()["progress"].is_null());
  begin(2);
  EXPECT_TRUE(now()["progress"].is_null());  // the status must not show step 0 before the first report
}

TEST_F(JobStatusTest, AFailureIsKeptInTheNextRound) {
  begin(0);
  start(0, 70);
  status_.on(WorkerEnded{0, 70, {.code = 3}, false, kNsOfASecond});
  EXPECT_EQ(now()["workers"][0]["how_it_ended"], "exit code 3");
  RoundFailed failed{};
  failed.first.rank = 0;
  failed.first.message = "no data";
  failed.decision = RoundFailed::Decision::kRestart;
  status_.on(failed);
  EXPECT_EQ(now()["state"], "restarting");
  begin(1);
  EXPECT_EQ(now()["state"], "running");
  EXPECT_EQ(now()["restart_count"], 1);
  EXPECT_TRUE(now()["workers"].empty());
  EXPECT_NE(now()["last_failure"].get<std::string>().find("rank 0"), std::string::npos);
}

TEST_F(JobStatusTest, SurvivorsKeepTheirProcesses) {
  begin(0, false, 1);
  start(2, 72);
  start(3, 73);
  begin(1, true, 0);
  start(1, 75);
  EXPECT_EQ(now()["workers"][0]["rank"], 0);
  EXPECT_EQ(now()["workers"][0]["pid"], 72);
  EXPECT_EQ(now()["workers"][1]["pid"], 75);
  status_.on(WorkerEnded{1, 73, {.signal = SIGKILL}, false, kNsOfASecond});  // this event is about an earlier process of rank 1
  EXPECT_EQ(now()["workers"][1]["state"], "running");
}

TEST_F(JobStatusTest, WorkersBeyondTheSizeLimitAreCounted) {
  status_.on(RoundStarted{.round = 0, .restart_count = 0, .world_size = 100, .time_ns = 1});
  for (int rank = 0; rank < 100; ++rank) status_.on(WorkerStarted{rank, rank, 1000 + rank, 1, false});
  const std::string whole = status_.json({.now_ns = 1});
  EXPECT_EQ(json::parse(whole)["workers"].size(), 100u);
  const std::string cut = status_.json({.now_ns = 1, .max_bytes = whole.size() - 1});
  EXPECT_LT(cut.size(), 2000u);
  EXPECT_EQ(json::parse(cut)["workers_left_out"], 100);
  EXPECT_EQ(json::parse(cut)["workers"].size(), 0u);
}

TEST_F(JobStatusTest, AStopIsReported) {
  begin(0);
  status_.on(StopRequested{SIGTERM, StopRequested::Effect::kNothingNew, kNsOfASecond});
  EXPECT_EQ(now()["state"], "running");
  status_.on(StopRequested{SIGTERM, StopRequested::Effect::kStops, kNsOfASecond});
  EXPECT_EQ(now()["state"], "stopping");
}

// The node is cut off from the coordinator. The workers of the node have ended, and the node tries to reach the other nodes.
// So its state must not be "running".
TEST_F(JobStatusTest, ACutOffNodeIsNotRunning) {
  begin(0);
  status_.on(CutOff{0, 12, kNsOfASecond});
  EXPECT_EQ(now()["state"], "restarting");
  EXPECT_TRUE(now()["last_failure"].get<std::string>().starts_with("no answer from the coordinator for 12.0 s"));
  begin(1);
  EXPECT_EQ(now()["state"], "running");
}

// Returns the control folders if XDG_RUNTIME_DIR has the value `runtime`, or is unset if `runtime` is null.
std::vector<std::filesystem::path> folders_with(const char* runtime) {
  const char* const before = std::getenv("XDG_RUNTIME_DIR");
  const std::string kept = before != nullptr ? before : "";
  runtime != nullptr ? ::setenv("XDG_RUNTIME_DIR", runtime, 1) : ::unsetenv("XDG_RUNTIME_DIR");
  const auto folders = control_folders();
  before != nullptr ? ::setenv("XDG_RUNTIME_DIR", kept.c_str(), 1) : ::unsetenv("XDG_RUNTIME_DIR");
  return folders;
}

TEST(ControlFolder, ControlFoldersAreSharedUnlessSeparated) {
  const std::string user = std::to_string(::geteuid()), login = "/run/user/" + user;
  const std::vector<std::filesystem::path> usual{"/tmp/ddprun-" + user, login + "/ddprun"};
  for (const char* elsewhere : {static_cast<const char*>(nullptr), "", "relative", "/run/user/of-another-machine"})
    EXPECT_EQ(folders_with(elsewhere), usual);
  const std::vector<std::filesystem::path> of_login{usual[1], usual[0]};
  EXPECT_EQ(folders_with(login.c_str()), of_login);
  EXPECT_EQ(folders_with((login + "/").c_str()), of_login);
  std::string apart = ::testing::TempDir() + "apart-XXXXXX";
  ASSERT_NE(::mkdtemp(apart.data()), nullptr);
  EXPECT_EQ(folders_with(apart.c_str()), std::vector{std::filesystem::path(apart) / "ddprun"});
  std::filesystem::remove(apart);
}

TEST(ControlFolder, AnAgentIsFoundByItsAbstractName) {
  const std::string name = abstract_name_of(::getpid());
  EXPECT_NE(name, abstract_name_of(::getpid()));  // the name is random, so that another user cannot create it in advance
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(name.size() + 1, sizeof address.sun_path);
  name.copy(address.sun_path + 1, name.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), size), 0);
  const auto is_listed = [&] { return std::ranges::count(abstract_sockets(), "@" + name) == 1; };
  EXPECT_FALSE(is_listed());
  ASSERT_EQ(::listen(fd, 1), 0);
  EXPECT_TRUE(is_listed());
  ::close(fd);
}

TEST(ControlClient, FieldsOfAnotherTypeAreDropped) {
  const auto status = with_known_types({{"title", "x"},
                                        {"run_dir", {{"a", 1}}},
                                        {"several_nodes", 3},
                                        {"workers", {1, {{"rank", "r"}, {"state", 5}, {"pid", 7}}}}});
  EXPECT_EQ(status, (nlohmann::json{{"title", "x"}, {"workers", {{{"pid", 7}}}}}));
  EXPECT_EQ(with_known_types({{"workers", 5}}), nlohmann::json::object());
}

TEST(ControlFolder, ASocketIsNamedByItsAgent) {
  EXPECT_EQ(agent_of_socket(control_socket_of("/run/ddprun", 41)), 41);
  EXPECT_EQ(control_socket_of("/run/ddprun", 41), "/run/ddprun/41.sock");
  EXPECT_EQ(control_socket_of("/run/ddprun", 41, 2), "/run/ddprun/41.2.sock");
  EXPECT_EQ(agent_of_socket(control_socket_of("/run/ddprun", 41, 2)), 41);
  for (const char* name : {"x.sock", "12.socket", "12", "12.", "-3.sock", ".sock", "0.sock", "12.0.sock", "12.x.sock",
                           "12.-1.sock", "12.1.2.sock", "12.1", "12.1sock", "12-1.sock", "12.sock+"})
    EXPECT_FALSE(agent_of_socket(name)) << name;
}

}  // namespace
}  // namespace ddprun
