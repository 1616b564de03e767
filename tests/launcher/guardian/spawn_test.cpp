// Tests the OOM score of a worker, which depends on the OOM score of the agent.
#include "launcher/guardian/spawn.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(WorkerOomScore, IsRaisedUnlessTheJobIsProtectedOrTheScoreIsHigher) {
  EXPECT_EQ(worker_oom_score(0), 500);
  EXPECT_EQ(worker_oom_score(499), 500);
  EXPECT_EQ(worker_oom_score(1000), 1000);
  EXPECT_EQ(worker_oom_score(-1), -1);
  EXPECT_EQ(worker_oom_score(-997), -997);
  EXPECT_EQ(worker_oom_score(-1000), -1000);
}

}  // namespace
}  // namespace ddprun
