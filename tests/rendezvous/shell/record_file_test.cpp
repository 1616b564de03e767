// Tests the file that contains a node's record. The record must be read back unchanged, other users must not be able to read
// it, and each agent must have a separate file.
#include "rendezvous/shell/record_file.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/temporary_folder.hpp"
#include "rendezvous/shell/job_marker.hpp"

namespace ddprun::rendezvous {
namespace {

namespace fs = std::filesystem;

RestoredState::Identity some_node() {
  RestoredState::Identity node;
  node.id.fill(7);
  node.incarnation = 5;
  node.record.state.promised_term = 3;
  node.record.state.current = {.id = {3, 9}, .born = 2, .nodes = 4, .rank = 2};
  node.record.state.budget = {.restart_count = 2,
                              .history = {.used = 1, .rounds = {{.cause = Cause::kHang, .lasted = std::chrono::seconds(3)}}},
                              .first_number = 6};
  node.record.coordinator = {.group_rank = 0, .node = {}, .address = {"10.0.0.1", 29400}};
  node.record.successors = {{.group_rank = 1, .node = {}, .address = {"::1", 7}}};
  node.record.roster = {.origin = {2, 9}, .nodes = {{1}, {2}}};
  node.record.place_is_new = true;
  return node;
}

TEST(RecordFile, RoundTripsEveryField) {
  const test::TemporaryFolder folder;
  auto file = RecordFile::claim(folder.path() / "state", "job");
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->read().self);
  ASSERT_TRUE(file->write(some_node()));
  const auto back = file->read().self;
  ASSERT_TRUE(back);
  EXPECT_EQ(back->id, some_node().id);
  EXPECT_EQ(back->incarnation, 5u);
  EXPECT_EQ(back->record.state, some_node().record.state);
  EXPECT_EQ(back->record.coordinator, some_node().record.coordinator);
  EXPECT_EQ(back->record.successors, some_node().record.successors);
  EXPECT_EQ(back->record.roster, some_node().record.roster);
  EXPECT_TRUE(back->record.place_is_new);
  file->forget();
  EXPECT_FALSE(file->read().self);
}

TEST(RecordFile, IncarnationGrowsEvenIfTheClockIsSetBack) {
  EXPECT_EQ(next_incarnation(RestoredState{}, 1000), 1000u);
  RestoredState before{.self = some_node()};
  before.self->incarnation = 2000;
  EXPECT_EQ(next_incarnation(before, 3000), 3000u);
  EXPECT_EQ(next_incarnation(before, 1000), 2001u);
}

TEST(RecordFile, HasPrivateModes) {
  const test::TemporaryFolder folder;
  auto file = RecordFile::claim(folder.path() / "state", "job");
  ASSERT_TRUE(file->write(some_node()));
  struct stat status {};
  ASSERT_EQ(::stat((folder.path() / "state" / "job").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat((folder.path() / "state").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
}

TEST(RecordFile, TwoAgentsGetDifferentFiles) {
  const test::TemporaryFolder folder;
  auto first = RecordFile::claim(folder.path(), "job");
  auto second = RecordFile::claim(folder.path(), "job");
  ASSERT_TRUE(first->write(some_node()));
  EXPECT_FALSE(second->read().self);
  first.reset();
  EXPECT_TRUE(RecordFile::claim(folder.path(), "job")->read().self);  // a restarted agent gets its identity back
}

TEST(RecordFile, ForgetRemovesAllFiles) {
  const test::TemporaryFolder folder;
  auto first = RecordFile::claim(folder.path(), "job");
  auto second = RecordFile::claim(folder.path(), "job");
  ASSERT_TRUE(first->write(some_node()));
  ASSERT_TRUE(second->write(some_node()));
  first->forget();
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "job.lock"));
  second.reset();
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "job-1"));
  EXPECT_TRUE(RecordFile::claim(folder.path(), "job"));
}

TEST(RecordFile, NewFolderProvesNothing) {
  const test::TemporaryFolder folder;
  EXPECT_FALSE(RecordFile::claim(folder.path() / "state", "job")->read().had_storage);
  const RestoredState second = RecordFile::claim(folder.path() / "state", "job")->read();
  EXPECT_TRUE(second.had_storage);
  EXPECT_FALSE(second.self || second.job_elsewhere);
}

// Expects the state that is restored after a record was lost. The state must contain the fact that a record was lost, because
// the job may be running elsewhere.
void expect_job_elsewhere(const RestoredState& restored) {
  EXPECT_FALSE(restored.self);
  EXPECT_TRUE(restored.job_elsewhere);
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Writes a damaged record. The node must start as if the record were lost, and the damaged file must be renamed and kept.
void expect_set_aside(const std::string& text) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "job";
  auto file = RecordFile::claim(folder.path(), "job");
  std::ofstream(path) << text;
  expect_job_elsewhere(file->read());
  EXPECT_NE(file->complaint().find(path.string() + " is damaged"), std::string::npos) << file->complaint();
  EXPECT_LT(file->complaint().size(), 3 * path.string().size() + 300);
  EXPECT_EQ(text_of(path.string() + ".damaged"), text);
  EXPECT_FALSE(fs::exists(path));
  ASSERT_TRUE(file->write(some_node()));
  EXPECT_EQ(text_of(path.string() + ".damaged"), text);
  EXPECT_TRUE(file->read().self);
}

std::string record_with(const nlohmann::json::json_pointer& place, const nlohmann::json& value) {
  const test::TemporaryFolder folder;
  auto file = RecordFile::claim(folder.path(), "job");
  EXPECT_TRUE(file->write(some_node()));
  nlohmann::json json = nlohmann::json::parse(text_of(folder.path() / "job"));
  json[place] = value;
  return json.dump();
}

TEST(RecordFile, DamagedRecordIsSetAside) {
  using Place = nlohmann::json::json_pointer;
  expect_set_aside("{\"format\": 1, \"boot\"");
  expect_set_aside("");
  expect_set_aside("[5]");
  expect_set_aside(std::string(100'000, '['));
  expect_set_aside(record_with(Place("/history/rounds/0/0"), 77));
  expect_set_aside(record_with(Place("/history/rounds/0/10"), 300));
  expect_set_aside(record_with(Place("/current/5"), 9));
  expect_set_aside(record_with(Place("/node"), "x"));
  expect_set_aside(std::string((8 << 20) + 1, ' '));  // a file above the size limit
  expect_set_aside(record_with(Place("/roster/nodes/0"), nlohmann::json::parse("[[[[[[[[1]]]]]]]]")));
}

// Only a regular file below the size limit is read. The attempt to open a pipe would block without a limit, and a huge file
// would exhaust the memory.
TEST(RecordFile, NonRegularFileIsSetAside) {
  const test::TemporaryFolder folder;
  auto file = RecordFile::claim(folder.path(), "job");
  ASSERT_EQ(::mkfifo((folder.path() / "job").c_str(), 0600), 0);
  expect_job_elsewhere(file->read());
  EXPECT_NE(file->complaint().find("is damaged (is not a regular file)"), std::string::npos) << file->complaint();
  ASSERT_TRUE(file->write(some_node()));
  EXPECT_TRUE(file->read().self);
}

TEST(RecordFile, OversizedRecordIsNotRead) {
  const test::TemporaryFolder folder;
  auto file = RecordFile::claim(folder.path(), "job");
  std::ofstream(folder.path() / "job") << "";
  fs::resize_file(folder.path() / "job", std::uintmax_t{1} << 40);
  expect_job_elsewhere(file->read());
  EXPECT_NE(file->complaint().find("the maximum for the record of a node is 8388608"), std::string::npos) << file->complaint();
}

TEST(RecordFile, RecordOfANewerBuildIsKept) {
  const test::TemporaryFolder folder;
  const std::string newer = record_with(nlohmann::json::json_pointer("/format"), 99);
  std::ofstream(folder.path() / "job") << newer;
  auto file = RecordFile::claim(folder.path(), "job");
  expect_job_elsewhere(file->read());
  EXPECT_NE(file->complaint().find("newer ddprun (format 99"), std::string::npos) << file->complaint();
  ASSERT_TRUE(file->write(some_node()));
  file->forget();
  file.reset();
  EXPECT_EQ(text_of(folder.path() / "job"), newer);
}

// Makes flock() fail in this process from now on. It fails in the same way on Lustre, and on NFS without locks.
void refuse_locks() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOLCK), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = 4, .filter = filter};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

TEST(RecordFile, FolderWithoutLocksIsReported) {
  const test::TemporaryFolder folder;
  EXPECT_EXIT(
      {
        refuse_locks();
        std::string why;
        const bool claimed = RecordFile::claim(folder.path(), "job", &why).has_value();
        std::cerr << (claimed ? "claimed" : why);
        std::exit(0);
      },
      testing::ExitedWithCode(0), ": its files cannot be locked: No locks available");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// Tests host names that would change the path if they were used unchanged. (Only root can set these host names.) The record
// folder must be inside the state folder even then.
TEST(RecordFolder, HostNameIsOnePathComponent) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to set the host name";
  EXPECT_EXIT(
      {
        const std::string name = "../../a b";
        const bool is_set = ::unshare(CLONE_NEWUTS) == 0 && ::sethostname(name.data(), name.size()) == 0;
        ::setenv("XDG_STATE_HOME", "/state", 1);
        std::cerr << (is_set ? record_folder().string() : "/state/ddprun/nodes/%2e.%2f..%2fa%20b");
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^/state/ddprun/nodes/%2e\\.%2f\\.\\.%2fa%20b$");
}

TEST(RecordFile, UnusableFolderIsReportedWithTheReason) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "";
  std::string why;
  EXPECT_FALSE(RecordFile::claim(folder.path() / "file", "job", &why));
  EXPECT_TRUE(why.starts_with((folder.path() / "file").string() + ": ")) << why;
}

TEST(RecordFile, RebootKeepsOnlyTheAddresses) {
  const test::TemporaryFolder folder;
  auto file = RecordFile::claim(folder.path(), "job");
  ASSERT_TRUE(file->write(some_node()));
  std::ifstream in(folder.path() / "job");
  nlohmann::json json = nlohmann::json::parse(in);
  json["boot"] = "another";
  std::ofstream(folder.path() / "job") << json;
  expect_job_elsewhere(file->read());
  EXPECT_EQ(file->read().addresses, (std::vector<Address>{{"10.0.0.1", 29400}, {"::1", 7}}));
}

TEST(RecordFile, FailedWriteRemovesTheOldRecord) {
  const test::TemporaryFolder folder;
  auto file = RecordFile::claim(folder.path(), "job");
  ASSERT_TRUE(file->write(some_node()));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);  // makes the write fail, as on a full disk
  const bool written = file->write(some_node());
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_FALSE(written);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "job"));
  file.reset();
  expect_job_elsewhere(RecordFile::claim(folder.path(), "job")->read());
}

TEST(JobMarker, ReportsARunningJobUntilItsEnd) {
  const test::TemporaryFolder folder;
  const auto read = [&] {
    RestoredState restored{.self = {}, .job_elsewhere = false, .addresses = {}, .had_storage = false};
    JobMarker(folder.path() / "nodes.json").add_to(restored);
    return restored;
  };
  EXPECT_FALSE(read().had_storage);
  JobMarker marker(folder.path() / "nodes.json");
  marker.note_over();
  EXPECT_FALSE(read().had_storage);  // false, because the marker file did not exist before
  marker.note_running();
  expect_job_elsewhere(read());
  marker.note_over();
  EXPECT_TRUE(read().had_storage);
  EXPECT_FALSE(read().job_elsewhere);
}

// A marker file with invalid contents must count as "running", because the job may be running.
TEST(JobMarker, DamagedMarkerCountsAsRunning) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "nodes.json";
  const auto expect_running = [&](const std::string& what) {
    RestoredState restored{.self = {}, .job_elsewhere = false, .addresses = {}, .had_storage = false};
    JobMarker(path).add_to(restored);
    EXPECT_TRUE(restored.had_storage && restored.job_elsewhere) << what;
    fs::remove(path);
  };
  for (const char* text : {"", "{", "[]", R"({"job": 5})", R"({"job": "over")", R"({"job": [["over"]]})"}) {
    std::ofstream(path) << text;
    expect_running(text);
  }
  std::ofstream(path) << R"({"job": "over"})" << std::string(5000, ' ');
  expect_running("longer than the limit");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_running("a pipe");
}

}  // namespace
}  // namespace ddprun::rendezvous
