// Tests how CPUs are counted from the kernel's files, and how a program is found in PATH.
#include "launcher/machine/detect.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(CpuQuota, IsReadFromCgroupV2) {
  EXPECT_DOUBLE_EQ(quota_of_cpu_max("200000 100000"), 2.0);
  EXPECT_DOUBLE_EQ(quota_of_cpu_max("50000 100000"), 0.5);
  EXPECT_EQ(quota_of_cpu_max("max 100000"), 0);
  EXPECT_EQ(quota_of_cpu_max(""), 0);
}

TEST(CpuQuota, IsReadFromCgroupV1) {
  EXPECT_DOUBLE_EQ(quota_of_cfs("150000", "100000"), 1.5);
  EXPECT_EQ(quota_of_cfs("-1", "100000"), 0);
  EXPECT_EQ(quota_of_cfs("100000", "0"), 0);
}

TEST(CpuCount, IsAffinityLimitedByTheQuota) {
  EXPECT_EQ((CpuCount{8, 0}.usable()), 8);
  EXPECT_EQ((CpuCount{8, 2.5}.usable()), 2);
  EXPECT_EQ((CpuCount{8, 0.5}.usable()), 1);
  EXPECT_EQ((CpuCount{2, 16}.usable()), 2);
  EXPECT_GE(count_cpus().usable(), 1);
}

TEST(Path, FindsWhatAShellFinds) {
  ASSERT_TRUE(find_on_path("sh"));
  EXPECT_TRUE(find_on_path("sh")->is_absolute());
  EXPECT_FALSE(find_on_path("no-such-program-anywhere"));
}

}  // namespace
}  // namespace ddprun
