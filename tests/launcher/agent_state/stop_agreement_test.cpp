// Tests how the ranks agree on the last step before a stop.
#include "launcher/agent_state/stop_in_progress.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(StopAgreement, IsTheLargestStepOnceAllHaveAnswered) {
  StopAgreement agreement({0, 1, 2});
  agreement.ready(0, 7);
  agreement.ready(2, 9);
  EXPECT_FALSE(agreement.step());
  agreement.ready(1, 8);
  EXPECT_EQ(agreement.step(), 9);
}

TEST(StopAgreement, RepeatedAndUnexpectedAnswersAreIgnored) {
  StopAgreement agreement({0, 1});
  agreement.ready(0, 7);
  agreement.ready(0, 100);
  agreement.ready(5, 100);
  agreement.ready(1, 6);
  EXPECT_EQ(agreement.step(), 7);
}

TEST(StopAgreement, ALeavingRankNeedNotAnswer) {
  StopAgreement agreement({0, 1});
  agreement.ready(0, 7);
  agreement.left(1);
  EXPECT_EQ(agreement.step(), 7);
}

TEST(StopAgreement, WithoutAnswersThereIsNoStep) {
  StopAgreement agreement({0});
  agreement.left(0);
  EXPECT_FALSE(agreement.step());
}

}  // namespace
}  // namespace ddprun
