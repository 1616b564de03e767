#include "trainer/loop/save_trouble.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace ddprun::trainer {
namespace {

std::error_code error(int number) {
  return {number, std::generic_category()};
}

TEST(SaveTrouble, EqualFailuresAreSaidOnceAndCounted) {
  SaveTrouble trouble;
  EXPECT_EQ(trouble.saved(7), "");
  EXPECT_TRUE(trouble.failed(14, error(ENOSPC)));
  EXPECT_FALSE(trouble.failed(21, error(ENOSPC)));
  EXPECT_FALSE(trouble.failed(28, error(ENOSPC)));
  EXPECT_TRUE(trouble.failed(35, error(EIO)));
  EXPECT_TRUE(trouble.failed(42, error(ENOSPC)));
  EXPECT_EQ(trouble.saved(49), "the checkpoint of step 49 is saved; 2 more were not, the last one of step 42");
  EXPECT_EQ(trouble.saved(56), "");
  EXPECT_TRUE(trouble.failed(63, error(ENOSPC)));
  EXPECT_EQ(trouble.saved(70), "");
}

}  // namespace
}  // namespace ddprun::trainer
