// Tests the peak memory use of this process: it rises when memory is used, and does not fall when memory is freed.
#include "trainer/cost/host_peak.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace ddprun::trainer {
namespace {

TEST(HostPeak, RisesWithTouchedMemoryAndStays) {
  constexpr std::int64_t kMore = 64 << 20;
  const std::int64_t before = host_peak_memory();
  // This amount exceeds the old peak, even if some memory was freed before.
  const auto bytes = static_cast<std::size_t>(before + kMore);
  EXPECT_GT(before, 1 << 20);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, bytes);
  const std::int64_t with = host_peak_memory();
  EXPECT_GE(with, before + kMore);
  ::munmap(memory, bytes);
  EXPECT_GE(host_peak_memory(), with);
}

}  // namespace
}  // namespace ddprun::trainer
