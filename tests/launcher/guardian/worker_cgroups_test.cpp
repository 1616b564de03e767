// Tests WorkerCgroups with a real cgroup v2 hierarchy, with or without the memory controller. Workers and their children are
// moved into a cgroup and killed, and the cgroups are removed. tests/whole_program/test_memory.py tests whole jobs with
// cgroups.
#include "launcher/guardian/worker_cgroups.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// A child process and a grandchild process. Both sleep until they are killed, and the grandchild is killed when the child
// dies. The constructor waits for a message from the grandchild. Without this wait, the child could die before the grandchild
// has set its parent-death signal, and the grandchild would outlive the test.
class Sleepers {
 public:
  Sleepers() {
    int ready[2];
    if (::pipe(ready) != 0) throw std::runtime_error("pipe");
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::fork() == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const pid_t own = ::getpid();
        [[maybe_unused]] const ssize_t n = ::write(ready[1], &own, sizeof own);
      }
      for (;;) ::pause();
    }
    if (::read(ready[0], &grandchild_, sizeof grandchild_) != sizeof grandchild_) grandchild_ = -1;
    pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, grandchild_, 0));
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Sleepers() {
    if (pidfd_ >= 0) ::close(pidfd_);
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Sleepers(const Sleepers&) = delete;
  Sleepers& operator=(const Sleepers&) = delete;

  pid_t child() const { return child_; }
  pid_t grandchild() const { return grandchild_; }
  int grandchild_pidfd() const { return pidfd_; }
  int wait() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return status;
  }

 private:
  pid_t child_ = -1;
  pid_t grandchild_ = -1;
  int pidfd_ = -1;
};

std::string cgroup_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/cgroup");
  std::string text;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("0::")) text = line;
  }
  return text;
}

TEST(WorkerCgroups, WorkerTreeIsPlacedKilledAndRemoved) {
  const CgroupFolders here = cgroups_of_this_process();
  if (!here.unified || ::access((here.unified->folder / "cgroup.procs").c_str(), W_OK) != 0) {
    GTEST_SKIP() << "no cgroup of version 2 can be made here";
  }
  const std::string top = "ddprun-" + std::to_string(::getpid());
  WorkerCgroups cgroups({.memory = std::nullopt, .unified = here.unified});
  EXPECT_FALSE(fs::exists(here.unified->folder / top));  // cgroups are created only when they are needed
  Sleepers worker;
  ASSERT_TRUE(cgroups.place(3, worker.child()));
  EXPECT_EQ(cgroups.cgroup_of(3).folder, here.unified->folder / top / "worker-3");
  EXPECT_TRUE(cgroup_of(worker.child()).ends_with(top + "/worker-3"));
  EXPECT_TRUE(cgroup_of(worker.grandchild()).ends_with(top + "/worker-3"));
  cgroups.kill();
  EXPECT_EQ(WTERMSIG(worker.wait()), SIGKILL);
  cgroups.end_round();
  EXPECT_TRUE(cgroups.cgroup_of(3).folder.empty());
  pollfd ended{worker.grandchild_pidfd(), POLLIN, 0};  // the grandchild has been killed, but may not be reaped yet
  EXPECT_EQ(::poll(&ended, 1, 60'000), 1);
  cgroups.remove();
  EXPECT_FALSE(fs::exists(here.unified->folder / top));
}

class OwnFolder {
 public:
  explicit OwnFolder(fs::path folder) : folder_(std::move(folder)) { fs::create_directory(folder_); }
  ~OwnFolder() {
    std::error_code ignored;
    fs::remove(folder_, ignored);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  void take(pid_t pid) const { std::ofstream(folder_ / "cgroup.procs") << pid; }
  const fs::path& path() const { return folder_; }

 private:
  fs::path folder_;
};

// cgexec, systemd-run, a scheduler's plugin or the script itself may have moved the worker to another cgroup. The limits of
// that cgroup must stay in force.
TEST(WorkerCgroups, AWorkerInAnotherCgroupStaysThere) {
  const CgroupFolders here = cgroups_of_this_process();
  if (!here.unified || ::access((here.unified->folder / "cgroup.procs").c_str(), W_OK) != 0) {
    GTEST_SKIP() << "no cgroup of version 2 can be made here";
  }
  const OwnFolder elsewhere(here.unified->folder / ("ddprun-test-elsewhere-" + std::to_string(::getpid())));
  WorkerCgroups cgroups({.memory = std::nullopt, .unified = here.unified});
  Sleepers whole;
  elsewhere.take(whole.child());
  EXPECT_FALSE(cgroups.place(0, whole.child()));
  EXPECT_TRUE(cgroup_of(whole.child()).ends_with(elsewhere.path().filename().string()));
  EXPECT_EQ(cgroups.cgroup_of(0).folder, elsewhere.path()) << "evidence is read where it is";
  Sleepers part;
  elsewhere.take(part.grandchild());
  EXPECT_TRUE(cgroups.place(1, part.child()));
  EXPECT_TRUE(cgroup_of(part.child()).ends_with("/worker-1"));
  EXPECT_TRUE(cgroup_of(part.grandchild()).ends_with(elsewhere.path().filename().string()));
  ::kill(whole.child(), SIGKILL);
  ::kill(part.child(), SIGKILL);
  for (Sleepers* both : {&whole, &part}) {
    both->wait();
    pollfd ended{both->grandchild_pidfd(), POLLIN, 0};
    EXPECT_EQ(::poll(&ended, 1, 60'000), 1);
  }
  cgroups.remove();
}

// The worker is killed before WorkerCgroups places it. For a dying process, cgroup v1 reports the root cgroup, which has no
// limit. So the root cgroup must not be used as the worker's folder.
TEST(WorkerCgroups, AnEndedWorkerHasNoFolder) {
  CgroupFolders here = cgroups_of_this_process();
  if (here.memory && ::access((here.memory->folder / "cgroup.procs").c_str(), W_OK) == 0) {
    here.unified.reset();
  } else if (!here.unified || ::access((here.unified->folder / "cgroup.procs").c_str(), W_OK) != 0) {
    GTEST_SKIP() << "no cgroup can be made here";
  }
  WorkerCgroups cgroups(here);
  Sleepers worker;
  ::kill(worker.child(), SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(worker.child()), &info, WEXITED | WNOWAIT), 0);
  cgroups.place(0, worker.child());
  if (here.memory) {
    EXPECT_TRUE(cgroups.cgroup_of(0).folder.empty()) << cgroups.cgroup_of(0).folder;
  } else {
    EXPECT_NE(cgroups.cgroup_of(0).folder, here.unified->root);
  }
  worker.wait();
  cgroups.remove();
}

// Two guardians in different PID namespaces can have the same pid, below the same cgroup. Neither guardian may use the cgroups
// of the other. If one guardian killed a common cgroup, it would kill the workers of the other guardian too.
TEST(WorkerCgroups, AnExistingFolderIsNotReused) {
  const CgroupFolders here = cgroups_of_this_process();
  if (!here.unified || ::access((here.unified->folder / "cgroup.procs").c_str(), W_OK) != 0) {
    GTEST_SKIP() << "no cgroup of version 2 can be made here";
  }
  const OwnFolder others(here.unified->folder / ("ddprun-" + std::to_string(::getpid())));
  WorkerCgroups cgroups({.memory = std::nullopt, .unified = here.unified});
  Sleepers worker;
  ASSERT_TRUE(cgroups.place(0, worker.child()));
  EXPECT_EQ(cgroups.cgroup_of(0).folder, others.path().string() + "-2/worker-0");
  cgroups.kill();
  worker.wait();
  pollfd ended{worker.grandchild_pidfd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 60'000), 1);
  cgroups.remove();
  EXPECT_TRUE(fs::exists(others.path()));
}

TEST(WorkerCgroups, WithoutPermissionNothingHappens) {
  WorkerCgroups cgroups({});
  EXPECT_FALSE(cgroups.place(0, ::getpid()));
  EXPECT_TRUE(cgroups.cgroup_of(0).folder.empty());
  EXPECT_EQ(cgroups.cgroup_of(0).kills_before, -1);
  cgroups.kill();
  cgroups.remove();
}

}  // namespace
}  // namespace ddprun
