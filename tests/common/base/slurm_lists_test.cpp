// Tests that Slurm's compressed lists of host names and task counts are expanded correctly.
#include "common/base/slurm_lists.hpp"

#include <gtest/gtest.h>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

TEST(SlurmLists, FindTheFirstHost) {
  EXPECT_EQ(first_slurm_host("n[0-3,7],m01"), "n0");
  EXPECT_EQ(first_slurm_host("n[007,9]"), "n007");
  EXPECT_EQ(first_slurm_host("rack[1-2]node[08-11].example"), "rack1node08.example");
  EXPECT_EQ(first_slurm_host("m01,n[0-3]"), "m01");
  for (const char* bad : {"", ",n1", "n[", "n[]", "n]1", "n[a-b]"}) EXPECT_THROW(first_slurm_host(bad), UsageError) << bad;
}

TEST(SlurmLists, ExpandTaskCounts) {
  EXPECT_EQ(expand_slurm_counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_slurm_counts("4"), (std::vector<int>{4}));
  for (const char* bad : {"", "2,", "2(x", "2(x0)", "-1", "x", "1(x999999999)"})
    EXPECT_THROW(expand_slurm_counts(bad), UsageError) << bad;
}

}  // namespace
}  // namespace ddprun
