// The peak of this process: it rises with what is touched, and stays when that is given back.
#include "trainer/cost/host_peak.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace ddprun::trainer {
namespace {

TEST(HostPeak, RisesWithWhatIsTouchedAndStays) {
  constexpr std::size_t kBytes = 256U << 20U;
  const std::int64_t before = host_peak_memory();
  EXPECT_GT(before, 1 << 20);
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kBytes);
  const std::int64_t with = host_peak_memory();
  EXPECT_GE(with, static_cast<std::int64_t>(kBytes));
  ::munmap(memory, kBytes);
  EXPECT_GE(host_peak_memory(), with);
}

}  // namespace
}  // namespace ddprun::trainer
