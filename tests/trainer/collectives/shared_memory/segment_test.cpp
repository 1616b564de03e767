// Tests segments: their layout and creation, memory limits, and the checks of a segment that another process has created.
#include "trainer/collectives/shared_memory/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>

#include "tests/trainer/collectives/shared_memory/test_ranks.hpp"
#include "trainer/collectives/shared_memory/memory_reserve.hpp"

namespace ddprun::trainer::collectives {
namespace {

std::string message_of(const std::variant<Segment, SegmentError>& result) {
  const auto* const error = std::get_if<SegmentError>(&result);
  return error != nullptr ? error->message : "";
}

TEST(SegmentLayout, PartsFollowEachOtherWithoutOverlap) {
  for (const int ranks : {1, 2, 7, kMaxLocalRanks}) {
    const SegmentSizes sizes = sizes_for(ranks, 12345);
    const SegmentLayout layout = layout_of(sizes).value();
    const int last = ranks - 1;
    EXPECT_GE(layout.controls, kPageBytes);
    EXPECT_LE(layout.control_of(last) + kControlBytes, layout.lanes);
    EXPECT_LE(layout.lane_word_of(last, last, true) + kWordSpacing, layout.cells);
    EXPECT_EQ(layout.cell_of(last, last, 1) + sizes.cell_bytes, layout.slots);
    EXPECT_EQ(layout.slot_of(last, kSlots - 1) + sizes.slot_bytes, layout.data);
    EXPECT_EQ(layout.data_of(last) + sizes.data_bytes, layout.total);
    EXPECT_EQ(sizes.data_bytes, 16384u);
    EXPECT_EQ(layout.data % kPageBytes, 0u);
    // A chunk must have at least one 64-byte cache line for each rank.
    EXPECT_GE(sizes.slot_bytes, static_cast<std::uint64_t>(ranks) * 64);
  }
}

TEST(SegmentLayout, RefusesSizesOutOfRange) {
  const SegmentSizes good = small_sizes(2);
  EXPECT_TRUE(layout_of(good));
  for (const auto& change : std::vector<std::function<void(SegmentSizes&)>>{
           [](SegmentSizes& sizes) { sizes.ranks = 0; }, [](SegmentSizes& sizes) { sizes.ranks = 65; },
           [](SegmentSizes& sizes) { sizes.slot_bytes = 0; }, [](SegmentSizes& sizes) { sizes.cell_bytes = 0; },
           [](SegmentSizes& sizes) { sizes.data_bytes = 100; }, [](SegmentSizes& sizes) { sizes.data_bytes = ~0xfffull; },
           [](SegmentSizes& sizes) { sizes.cell_bytes = 1ull << 40, sizes.ranks = 64; }}) {
    SegmentSizes sizes = good;
    change(sizes);
    EXPECT_FALSE(layout_of(sizes));
  }
}

TEST(Segment, TooLittleMemoryIsAnError) {
  SegmentSizes sizes = small_sizes(2);
  sizes.data_bytes = 1ull << 40;
  EXPECT_NE(message_of(Segment::create(sizes)).find("MiB of shared memory, but "), std::string::npos);
}

TEST(Segment, LimitOfFileSizesIsAnErrorAndNoSignal) {
  RankProcess child([] {
    const rlimit limit{.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = message_of(Segment::create(small_sizes(2)));
    return message.find("ulimit -f") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

// Returns the allocated bytes of a memfd.
std::uint64_t allocated_bytes(const Segment& segment) {
  struct stat status {};
  EXPECT_EQ(::fstat(segment.fd(), &status), 0);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

TEST(Segment, EachRankAllocatesItsPart) {
  SegmentSizes sizes = small_sizes(3);
  sizes.data_bytes = 1 << 20;
  const auto segment = created(sizes);
  const SegmentLayout& layout = segment->layout();
  EXPECT_EQ(allocated_bytes(*segment), layout.slots);
  const std::uint64_t part = (layout.total - layout.slots) / 3;
  for (const int rank : {1, 0, 2}) {
    const std::uint64_t before = allocated_bytes(*segment);
    EXPECT_FALSE(segment->allocate_part(rank));
    EXPECT_EQ(allocated_bytes(*segment), before + part) << rank;
    EXPECT_FALSE(segment->allocate_part(rank));  // a second call changes nothing
    EXPECT_EQ(allocated_bytes(*segment), before + part) << rank;
  }
  EXPECT_EQ(allocated_bytes(*segment), layout.total);
}

// Creates a cgroup v1 with a memory limit, below the cgroup of this process.
class MemoryCgroup {
 public:
  explicit MemoryCgroup(std::uint64_t limit) {
    std::ifstream file("/proc/self/cgroup");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto own = cgroup_path(text, "memory");
    if (!own) return;
    folder_ = "/sys/fs/cgroup/memory" + *own + "/ddprun-test-" + std::to_string(::getpid());
    created_ =
        ::mkdir(folder_.c_str(), 0755) == 0 && static_cast<bool>(std::ofstream(folder_ + "/memory.limit_in_bytes") << limit);
  }
  ~MemoryCgroup() { ::rmdir(folder_.c_str()); }
  bool created() const { return created_; }
  bool enter() const { return static_cast<bool>(std::ofstream(folder_ + "/cgroup.procs") << ::getpid() << std::flush); }

 private:
  std::string folder_;
  bool created_ = false;
};

TEST(Segment, LimitOfACgroupIsAnErrorAndNoKill) {
  const MemoryCgroup cgroup(32 << 20);
  if (!cgroup.created()) GTEST_SKIP() << "this machine does not allow a cgroup (version 1) with a memory limit";
  RankProcess child([&] {
    if (!cgroup.enter()) return 2;
    SegmentSizes sizes = small_sizes(2);
    sizes.data_bytes = 64 << 20;
    return message_of(Segment::create(sizes)).find("the memory limit of the cgroup") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Segment, ARankInAnotherCgroupReportsThatItsPartDoesNotFit) {
  const MemoryCgroup cgroup(32 << 20);
  if (!cgroup.created()) GTEST_SKIP() << "this machine does not allow a cgroup (version 1) with a memory limit";
  SegmentSizes sizes = small_sizes(2);
  sizes.data_bytes = 64 << 20;
  const auto segment = created(sizes);
  RankProcess child([&] {
    if (!cgroup.enter()) return 2;
    const auto refusal = segment->allocate_part(1);
    return refusal && refusal->message.find("this rank needs 64 MiB of shared memory, but the memory limit") == 0 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

// The sanitizers themselves need more address space than the limit, so the test is skipped.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(Segment, LimitOfAddressSpaceIsAnError) {
  RankProcess child([] {
    const rlimit limit{.rlim_cur = 64 << 20, .rlim_max = 64 << 20};
    ::setrlimit(RLIMIT_AS, &limit);
    SegmentSizes sizes = small_sizes(2);
    sizes.data_bytes = 64 << 20;
    return message_of(Segment::create(sizes)).find("mmap") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}
#endif

TEST(Segment, SizeCannotChange) {
  const auto segment = created(small_sizes(2));
  EXPECT_EQ(::ftruncate(segment->fd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(Segment, MapChecksTheHeader) {
  const auto map_with = [](std::uint64_t position, std::uint64_t value, int ranks) {
    const auto segment = created(small_sizes(2));
    if (value != 0) {
      EXPECT_EQ(::pwrite(segment->fd(), &value, sizeof(value), static_cast<off_t>(position)), 8);
    }
    return message_of(Segment::map(Descriptor(::dup(segment->fd())), ranks));
  };
  EXPECT_EQ(map_with(0, 0, 2), "");
  EXPECT_NE(map_with(0, 0, 3).find("was created for 2 ranks, but this group has 3"), std::string::npos);
  EXPECT_NE(map_with(0, 5, 2).find("version 0, expected 1"), std::string::npos);
  EXPECT_NE(map_with(8, 9, 2).find("version 9, expected 1"), std::string::npos);
  EXPECT_NE(map_with(24, 8192, 2).find("bytes, expected"), std::string::npos);  // slot_bytes is at offset 24
  EXPECT_NE(map_with(24, 1, 2).find("valid sizes"), std::string::npos);
}

TEST(Segment, MapRefusesAFileWhoseSizeMayChange) {
  Descriptor memfd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memfd.get(), 1 << 20), 0);
  EXPECT_NE(message_of(Segment::map(std::move(memfd), 2)).find("sealed"), std::string::npos);
}

TEST(Segment, ARankIsAttachedOnce) {
  const auto segment = created(small_sizes(2));
  const auto first = attached(segment, 0, test_waits(2));
  const auto second = SharedTransport::attach(segment, 0, test_waits(2));
  EXPECT_NE(std::get<SegmentError>(second).message.find(std::to_string(::getpid())), std::string::npos);
}

TEST(Segment, TheFirstCauseOfAnAbortCounts) {
  const auto segment = created(small_sizes(2));
  EXPECT_EQ(segment->abort_cause(), AbortCause{});
  const AbortCause first{.kind = AbortCause::Kind::kRankLost, .rank = 1, .by = 63};
  segment->abort(first);
  segment->abort({.kind = AbortCause::Kind::kLimit, .rank = 0, .by = 1});
  EXPECT_EQ(segment->abort_cause(), first);
}

TEST(MemoryReserve, ReadsTheFilesOfTheKernel) {
  EXPECT_EQ(kib_after("MemTotal:  10 kB\nMemAvailable:    7 kB\n", "MemAvailable:"), 7u << 10);
  EXPECT_EQ(bytes_after("total_inactive_file 1\ninactive_file 12\n", "inactive_file"), 12u);
  EXPECT_EQ(bytes_after("inactive_file x\n", "inactive_file"), std::nullopt);
  EXPECT_EQ(bytes_after("", "inactive_file"), std::nullopt);
  const std::string_view cgroups = "4:cpu,memory:/job/a\n0::/unified\n";
  EXPECT_EQ(cgroup_path(cgroups, "memory"), "/job/a");
  EXPECT_EQ(cgroup_path(cgroups, ""), "/unified");
  EXPECT_EQ(cgroup_path(cgroups, "pids"), std::nullopt);
  EXPECT_EQ(cgroup_path("0::/../../outside\n", ""), "/");
}

TEST(PeerProcess, DetectsTheEndOfAProcess) {
  EXPECT_EQ(start_time_in("12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"), 4711u);
  EXPECT_EQ(start_time_in("12 (a) S 1 2"), std::nullopt);
  ProcessIdentity self = this_process();
  EXPECT_FALSE(PeerProcess(self).has_ended());
  // If the start time differs, a later process has the same pid, so the process has ended.
  self.start_time += 1;
  EXPECT_TRUE(PeerProcess(self).has_ended());
  // A process in another pid namespace cannot be examined, so it counts as running.
  self.pid_namespace += 1;
  EXPECT_FALSE(PeerProcess(self).has_ended());
}

TEST(DataAllocator, SameCallsGiveSameOffsets) {
  const auto calls = [] {
    DataAllocator area(1000);  // the area has 15 cache lines, each with 64 bytes
    std::vector<std::optional<std::uint64_t>> offsets{area.allocate(1), area.allocate(128), area.allocate(0)};
    area.release(64);
    offsets.push_back(area.allocate(64));
    offsets.push_back(area.allocate(128));
    offsets.push_back(area.allocate(1000));
    for (const std::uint64_t offset : {256, 0, 64, 192}) area.release(offset);
    EXPECT_EQ(area.free_bytes(), 960u);
    offsets.push_back(area.allocate(960));
    return offsets;
  };
  const std::vector<std::optional<std::uint64_t>> expected{0, 64, 192, 64, 256, std::nullopt, 0};
  EXPECT_EQ(calls(), expected);
  EXPECT_EQ(calls(), calls());
}

TEST(WaitSettings, RanksSpinOnlyIfEachHasACore) {
  EXPECT_EQ(spin_for(3, 2).count(), 0);
  EXPECT_GT(spin_for(2, 2).count(), 0);
}

}  // namespace
}  // namespace ddprun::trainer::collectives
