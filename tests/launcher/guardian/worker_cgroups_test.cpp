// Real cgroups of version 2, which work without the memory controller too: a worker and what it started are placed, killed and
// their folders removed. tests/whole_program/test_memory.py has the rest through ddprun itself.
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

// A child that has a child, both asleep for ever.
class Sleepers {
 public:
  Sleepers() {
    int ready[2];
    if (::pipe(ready) != 0) throw std::runtime_error("pipe");
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const pid_t grandchild = ::fork();
      if (grandchild == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) ::pause();
      }
      [[maybe_unused]] const ssize_t n = ::write(ready[1], &grandchild, sizeof grandchild);
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

TEST(WorkerCgroups, AWorkerAndItsChildrenArePlacedKilledAndNothingIsLeft) {
  const CgroupFolders here = cgroups_of_this_process();
  if (!here.unified || ::access((here.unified->folder / "cgroup.procs").c_str(), W_OK) != 0) {
    GTEST_SKIP() << "no cgroup of version 2 can be made here";
  }
  const std::string top = "ddprun-" + std::to_string(::getpid());
  WorkerCgroups cgroups({.memory = std::nullopt, .unified = here.unified});
  EXPECT_FALSE(fs::exists(here.unified->folder / top));  // nothing is made before it is needed
  Sleepers worker;
  ASSERT_TRUE(cgroups.place(3, worker.child()));
  EXPECT_EQ(cgroups.folder_of(3), here.unified->folder / top / "worker-3");
  EXPECT_TRUE(cgroup_of(worker.child()).ends_with(top + "/worker-3"));
  EXPECT_TRUE(cgroup_of(worker.grandchild()).ends_with(top + "/worker-3"));
  cgroups.kill();
  EXPECT_EQ(WTERMSIG(worker.wait()), SIGKILL);
  cgroups.end_round();
  EXPECT_TRUE(cgroups.folder_of(3).empty());
  pollfd ended{worker.grandchild_pidfd(), POLLIN, 0};  // it is somebody else's to reap; dead is enough
  EXPECT_EQ(::poll(&ended, 1, 60'000), 1);
  cgroups.remove();
  EXPECT_FALSE(fs::exists(here.unified->folder / top));
}

TEST(WorkerCgroups, WhereNoneCanBeMadeNothingHappens) {
  WorkerCgroups cgroups({});
  EXPECT_FALSE(cgroups.place(0, ::getpid()));
  EXPECT_TRUE(cgroups.folder_of(0).empty());
  EXPECT_EQ(cgroups.kills_before(0), -1);
  cgroups.kill();
  cgroups.remove();
}

}  // namespace
}  // namespace ddprun
