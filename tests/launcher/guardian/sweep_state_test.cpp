// SweepState: orders, deaths and the end of time go in, what to kill comes out.
#include "launcher/guardian/sweep_state.hpp"

#include <gtest/gtest.h>

namespace ddprun::guardian {
namespace {

using Do = SweepState::Do;
using Orders = SweepState::Orders;

TEST(SweepState, KillsUntilNoChildIsLeft) {
  SweepState state;
  EXPECT_EQ(state.ordered(false, true), (Orders{Do::kKillCgroups, Do::kKillChildren}));
  EXPECT_EQ(state.child_ended(true), Orders{Do::kKillChildren});  // its orphans are ours now
  EXPECT_FALSE(state.take_end_of_round());
  EXPECT_EQ(state.child_ended(false), Orders{Do::kTellSwept});
  EXPECT_TRUE(state.take_end_of_round());
  EXPECT_FALSE(state.take_end_of_round());
  EXPECT_EQ(state.child_ended(false), Orders{});  // said once
}

TEST(SweepState, WithoutAChildItIsSaidAtOnce) {
  SweepState state;
  EXPECT_EQ(state.ordered(false, false), (Orders{Do::kKillCgroups, Do::kTellSwept}));
  EXPECT_TRUE(state.take_end_of_round());
}

TEST(SweepState, APatientSweepWaitsAndAnImpatientOneMayFollow) {
  SweepState state;
  EXPECT_EQ(state.ordered(true, true), Orders{Do::kEndStrangers});
  EXPECT_EQ(state.child_ended(true), Orders{});
  EXPECT_EQ(state.ordered(false, true), (Orders{Do::kKillCgroups, Do::kKillChildren}));
  EXPECT_EQ(state.child_ended(false), Orders{Do::kTellSwept});
}

TEST(SweepState, NoSweepIsNeededWhereTheLastWorkerLeavesNothing) {
  SweepState state;
  EXPECT_FALSE(state.last_worker_ended(true));
  EXPECT_FALSE(state.take_end_of_round());
  EXPECT_TRUE(state.last_worker_ended(false));
  EXPECT_TRUE(state.take_end_of_round());
}

TEST(SweepState, ASweepThatWasOrderedIsAnsweredAsOne) {
  SweepState state;
  state.ordered(false, true);
  EXPECT_FALSE(state.last_worker_ended(false));
  EXPECT_EQ(state.child_ended(false), Orders{Do::kTellSwept});
}

TEST(SweepState, AfterTheGrantsEndWhateverComesUpIsKilledUntilThereIsAnother) {
  SweepState state;
  EXPECT_EQ(state.grant_ended(), Orders{Do::kKillChildren});
  EXPECT_EQ(state.child_ended(true), Orders{Do::kKillChildren});
  state.grant_renewed();
  EXPECT_EQ(state.child_ended(true), Orders{});
}

TEST(SweepState, ASweepAfterTheGrantsEndIsAnswered) {
  SweepState state;
  state.grant_ended();
  state.ordered(true, true);
  EXPECT_EQ(state.child_ended(false), (Orders{Do::kKillChildren, Do::kTellSwept}));
}

}  // namespace
}  // namespace ddprun::guardian
