#include "trainer/loop/save_failures.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace ddprun::trainer {
namespace {

std::error_code error(int number) {
  return {number, std::generic_category()};
}

TEST(SaveFailures, EqualFailuresAreReportedOnceAndCounted) {
  SaveFailures failures;
  EXPECT_EQ(failures.saved(7), "");
  EXPECT_TRUE(failures.failed(14, error(ENOSPC)));
  EXPECT_FALSE(failures.failed(21, error(ENOSPC)));
  EXPECT_FALSE(failures.failed(28, error(ENOSPC)));
  EXPECT_TRUE(failures.failed(35, error(EIO)));
  EXPECT_TRUE(failures.failed(42, error(ENOSPC)));
  EXPECT_EQ(failures.saved(49),
            "the checkpoint of step 49 was saved. 2 earlier checkpoints could not be saved, most recently at step 42");
  EXPECT_EQ(failures.saved(56), "");
  EXPECT_TRUE(failures.failed(63, error(ENOSPC)));
  EXPECT_EQ(failures.saved(70), "");
}

}  // namespace
}  // namespace ddprun::trainer
