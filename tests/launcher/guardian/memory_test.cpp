// Tests how the guardian detects that a worker was killed because memory ran out: the cgroups of a process, their counters,
// and the verdict. The test writes the counters to files. tests/whole_program/test_memory.py tests the same functions with the
// real kernel.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "launcher/diagnosis/oom_verdict.hpp"
#include "launcher/guardian/memory_watch.hpp"
#include "launcher/machine/cgroup_folders.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Proof = OomVerdict::Proof;
constexpr std::int64_t kMib = 1 << 20;
constexpr ExitStatus kKilled{.signal = SIGKILL};

constexpr const char* kHybridMounts =
    "24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "30 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "31 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "32 24 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(CgroupFolders, HybridMachineHasBothTrees) {
  const CgroupFolders found = find_cgroups("4:memory:/batch/job 7\n1:cpu:/\n0::/\n", kHybridMounts);
  ASSERT_TRUE(found.memory && found.unified);
  EXPECT_EQ(found.memory->folder, "/sys/fs/cgroup/memory/batch/job 7");
  EXPECT_FALSE(found.memory->is_root());
  EXPECT_EQ(found.unified->folder, "/sys/fs/cgroup/unified");
  EXPECT_TRUE(found.unified->is_root());
}

TEST(CgroupFolders, FindsVersionTwoAlone) {
  const CgroupFolders found = find_cgroups("0::/user.slice/user@1000.service/app\n",
                                           "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
  EXPECT_FALSE(found.memory);
  ASSERT_TRUE(found.unified);
  EXPECT_EQ(found.unified->folder, "/sys/fs/cgroup/user.slice/user@1000.service/app");
}

TEST(CgroupFolders, ContainerSeesOnlyItsSubtree) {
  const CgroupFolders inside = find_cgroups("5:memory:/docker/abc\n",
                                            "31 24 0:28 /docker/abc /sys/fs/cgroup/mem\\040ory ro - cgroup cgroup rw,memory\n");
  ASSERT_TRUE(inside.memory);
  EXPECT_EQ(inside.memory->folder, "/sys/fs/cgroup/mem ory");
  const CgroupFolders outside =
      find_cgroups("5:memory:/docker/abcdef\n", "31 24 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  EXPECT_FALSE(outside.memory);  // the process is in cgroup abcdef, but only abc is mounted
  EXPECT_FALSE(find_cgroups("0::/../elsewhere\n", kHybridMounts).unified);
  EXPECT_FALSE(find_cgroups("", "").memory);
}

// ---- counters ----

class MemoryWatchTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name) << text;
  }
  void machine(int kills) {
    write("proc/vmstat", "nr_free_pages 4\noom_kill " + std::to_string(kills) + "\n");
    write("proc/meminfo", "MemTotal:  1048576 kB\nMemFree: 5 kB\nMemAvailable:   524288 kB\n");
  }
  CgroupFolder job() const { return {folder_.path() / "tree/job", folder_.path() / "tree"}; }

  test::TemporaryFolder folder_;
};

TEST_F(MemoryWatchTest, VersionOneCountsNewKillsAndFindsSmallestLimit) {
  machine(7);
  write("tree/memory.limit_in_bytes", "9223372036854771712\n");
  write("tree/job/memory.limit_in_bytes", "536870912\n");
  write("tree/job/memory.usage_in_bytes", "1048576\n");
  write("tree/job/memory.max_usage_in_bytes", "536870912\n");
  write("tree/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  write("tree/job/worker-0/memory.limit_in_bytes", "9223372036854771712\n");
  write("tree/job/worker-0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  MemoryWatch watch({.memory = job(), .unified = std::nullopt}, folder_.path() / "proc");
  watch.begin();
  machine(8);
  const MemoryEvidence evidence = watch.take(kKilled, {job().folder / "worker-0", 3});
  EXPECT_EQ(evidence.worker_kills, 1);
  EXPECT_EQ(evidence.job_kills, 0);
  EXPECT_EQ(evidence.machine_kills, 1);
  EXPECT_EQ(evidence.limit, 512 * kMib);
  EXPECT_EQ(evidence.limit_usage, kMib);
  EXPECT_EQ(evidence.limit_peak, 512 * kMib);
  EXPECT_EQ(evidence.total, 1024 * kMib);
  EXPECT_EQ(evidence.available, 512 * kMib);
}

TEST_F(MemoryWatchTest, VersionTwoUsesItsFileNames) {
  machine(0);
  write("tree/job/memory.max", "max\n");
  write("tree/memory.max", "1073741824\n");
  write("tree/memory.peak", "1073700000\n");
  write("tree/job/memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\noom_group_kill 0\n");
  MemoryWatch watch({.memory = std::nullopt, .unified = job()}, folder_.path() / "proc");
  watch.begin();
  write("tree/job/memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 5\n");
  const MemoryEvidence evidence = watch.take(kKilled, {});
  EXPECT_EQ(evidence.worker_kills, -1);  // the worker has no separate cgroup
  EXPECT_EQ(evidence.job_kills, 1);
  EXPECT_EQ(evidence.limit, 1024 * kMib);
  EXPECT_EQ(evidence.limit_usage, -1);
}

// The next workers start only after the guardian has read the counters. To save time, it reads only counters that can affect
// the verdict.
TEST_F(MemoryWatchTest, WithoutSigkillOnlyTheWorkerCounterIsRead) {
  machine(7);
  write("tree/job/memory.limit_in_bytes", "536870912\n");
  write("tree/job/worker-0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  MemoryWatch watch({.memory = job(), .unified = std::nullopt}, folder_.path() / "proc");
  watch.begin();
  machine(8);
  for (const ExitStatus& status : {ExitStatus{.signal = SIGTERM}, ExitStatus{.code = 1}}) {
    const MemoryEvidence nothing = watch.take(status, {job().folder / "worker-0", 4});
    EXPECT_EQ(nothing.taken, 0);
    EXPECT_EQ(nothing.total, -1);
    EXPECT_EQ(nothing.limit, -1);
    const MemoryEvidence killed_below = watch.take(status, {job().folder / "worker-0", 3});
    EXPECT_EQ(killed_below.taken, 1);
    EXPECT_EQ(killed_below.worker_kills, 1);
    EXPECT_EQ(killed_below.limit, 512 * kMib);
  }
  EXPECT_EQ(watch.take({.code = 137}, {}).machine_kills, 1);  // a wrapper exits with 137 if its child was killed by SIGKILL
}

TEST_F(MemoryWatchTest, MissingCountersAreUnknown) {
  MemoryWatch watch({}, folder_.path() / "nothing");
  watch.begin();
  const MemoryEvidence evidence = watch.take(kKilled, {});
  EXPECT_EQ(evidence.taken, 1);
  for (const std::int64_t value : {evidence.worker_kills, evidence.job_kills, evidence.machine_kills, evidence.limit,
                                   evidence.available, evidence.total}) {
    EXPECT_EQ(value, -1);
  }
}

TEST(KernelLog, RecordMatchesProcessAndTime) {
  const std::string record =
      "6,900,5000000,-;Memory cgroup out of memory: Killed process 4321 (python) total-vm:10kB, anon-rss:5kB";
  EXPECT_TRUE(names_oom_victim(record, 4321, 4'000'000));
  EXPECT_FALSE(names_oom_victim(record, 432, 4'000'000));
  // The kernel's record is older than the time limit, so it may be about an earlier process with the same pid.
  EXPECT_FALSE(names_oom_victim(record, 4321, 6'000'000));
  EXPECT_FALSE(names_oom_victim("garbage", 4321, 0));
}

// ---- the verdict ----

MemoryEvidence read_evidence() {
  MemoryEvidence evidence;
  evidence.taken = 1;
  return evidence;
}

TEST(OomVerdict, AKillInTheWorkerCgroupIsProof) {
  MemoryEvidence evidence = read_evidence();
  evidence.worker_kills = 1;
  evidence.limit = evidence.limit_peak = 512 * kMib;
  const OomVerdict verdict = judge_memory(evidence, kKilled);
  EXPECT_EQ(verdict.proof, Proof::kProven);
  EXPECT_EQ(verdict.message, "killed by the kernel: out of memory; limit 512 MiB, peak use 512 MiB");
}

TEST(OomVerdict, NoKillInTheWorkerCgroupExcludesOom) {
  MemoryEvidence evidence = read_evidence();
  evidence.worker_kills = 0;
  evidence.job_kills = evidence.machine_kills = 1;
  evidence.limit = evidence.limit_peak = 512 * kMib;
  EXPECT_EQ(judge_memory(evidence, kKilled).proof, Proof::kNone);
}

TEST(OomVerdict, AWrapperWithAKilledChildIsReported) {
  MemoryEvidence evidence = read_evidence();
  evidence.worker_kills = 1;
  const OomVerdict verdict = judge_memory(evidence, {.code = 1});
  EXPECT_EQ(verdict.proof, Proof::kProven);
  EXPECT_EQ(verdict.message, "the kernel killed a process of this worker: out of memory");
}

TEST(OomVerdict, JobCounterIsProofWithoutAWorkerCgroup) {
  MemoryEvidence evidence = read_evidence();
  evidence.job_kills = 1;
  EXPECT_EQ(judge_memory(evidence, kKilled).proof, Proof::kProven);
  EXPECT_EQ(judge_memory(evidence, {.code = 137}).proof, Proof::kProven);
  EXPECT_EQ(judge_memory(evidence, {.code = 1}).proof, Proof::kNone);
}

TEST(OomVerdict, WithoutCountersUsageRaisesASuspicion) {
  MemoryEvidence evidence = read_evidence();
  EXPECT_EQ(judge_memory(evidence, kKilled).proof, Proof::kNone);
  evidence.machine_kills = 1;
  EXPECT_EQ(judge_memory(evidence, kKilled).proof, Proof::kSuspected);
  evidence.in_kernel_log = 1;
  EXPECT_EQ(judge_memory(evidence, kKilled).proof, Proof::kProven);

  MemoryEvidence full = read_evidence();
  full.total = 1000 * kMib;
  full.available = 20 * kMib;
  EXPECT_EQ(judge_memory(full, kKilled).proof, Proof::kSuspected);
  full.available = 500 * kMib;
  EXPECT_EQ(judge_memory(full, kKilled).proof, Proof::kNone);
  full.limit = 100 * kMib;
  full.limit_peak = 99 * kMib;
  EXPECT_EQ(judge_memory(full, kKilled).proof, Proof::kSuspected);
  EXPECT_EQ(judge_memory(full, {.code = 0, .signal = SIGSEGV}).proof, Proof::kNone);
}

TEST(OomVerdict, WithoutCountersThereIsNoProof) {
  EXPECT_EQ(judge_memory({}, kKilled).proof, Proof::kNone);
  EXPECT_EQ(judge_memory({}, kKilled).evidence, "");
}

TEST(FormatBytes, Sizes) {
  EXPECT_EQ(format_bytes(900), "900 B");
  EXPECT_EQ(format_bytes(512 * kMib), "512 MiB");
  EXPECT_EQ(format_bytes(1536 * kMib), "1.5 GiB");
  EXPECT_EQ(format_bytes(20'000 * kMib), "19.5 GiB");
}

}  // namespace
}  // namespace ddprun
