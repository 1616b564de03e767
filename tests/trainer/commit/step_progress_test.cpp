// Tests StepProgress, the progress of one rank: its report at each point of a step and of a regroup, and the calls that it
// refuses because their order is invalid.
#include "trainer/commit/step_progress.hpp"

#include <gtest/gtest.h>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

constexpr LayoutPlace kPlace{.layout_number = 0, .rank = 1};

StepProgress progress_at(std::int64_t step) {
  StepProgress progress;
  progress.start_from(step, kPlace);
  return progress;
}

StepProgress progress_after_agree(std::int64_t step) {
  StepProgress progress = progress_at(step - 1);
  progress.begin_step();
  progress.gradients_reduced();
  progress.agree_passed();
  return progress;
}

TEST(StepProgress, ReportsEachPointOfAStep) {
  StepProgress progress = progress_at(7);
  progress.begin_step();
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .made = 7, .received = 7, .agreed = 7}));
  progress.gradients_reduced();
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .made = 7, .received = 7, .gradients = 8, .agreed = 7}));
  progress.agree_passed();
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .made = 7, .received = 7, .gradients = 8, .agreed = 8}));
  progress.begin_update();
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .received = 7, .gradients = 8, .agreed = 8}));
  progress.updated();
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .made = 8, .gradients = 8, .agreed = 8}));
  progress.published();
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .made = 8, .received = 8, .gradients = 8, .agreed = 8}));
  EXPECT_EQ(progress.step(), 8);
}

TEST(StepProgress, EvaluationBelongsToItsStep) {
  StepProgress progress = progress_at(7);
  progress.evaluated();
  progress.begin_step();
  progress.gradients_reduced();
  EXPECT_TRUE(progress.report().evaluated);
  progress.agree_passed();
  EXPECT_FALSE(progress.report().evaluated);
}

TEST(StepProgress, GradientsAreKeptUntilTheNextStepBegins) {
  StepProgress progress = progress_after_agree(8);
  progress.begin_update();
  progress.updated();
  progress.published();
  EXPECT_EQ(progress.report().gradients, 8);
  progress.begin_step();
  EXPECT_EQ(progress.report().gradients, kNoStep);
}

TEST(StepProgress, StrategyThatKeepsNoGradientsReportsNone) {
  StepProgress progress(/*keeps_gradients=*/false);
  progress.start_from(7, kPlace);
  progress.begin_step();
  progress.gradients_reduced();
  EXPECT_EQ(progress.report().gradients, kNoStep);
  progress.agree_passed();
  progress.begin_update();
  progress.updated();
  EXPECT_EQ(progress.step(), 8);
}

// With strategy ddp, a rank whose update fails counts as a rank without a state. The other ranks continue from the previous
// step.
TEST(StepProgress, FailedUpdateWithoutKeptGradientsCountsForNoStep) {
  StepProgress progress(/*keeps_gradients=*/false);
  progress.start_from(7, kPlace);
  progress.begin_step();
  progress.gradients_reduced();
  progress.agree_passed();
  progress.begin_update();
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .received = 7}));
  progress.take_values(7, /*evaluated=*/false);
  progress.received_all(kPlace);
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .made = 7, .received = 7, .agreed = 7}));
}

TEST(StepProgress, CompletesAStepWithReceivedValues) {
  StepProgress progress = progress_at(7);
  progress.begin_step();
  progress.gradients_reduced();
  progress.take_values(8, /*evaluated=*/false);
  progress.begin_update();
  progress.updated();
  progress.received_all(kPlace);
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .made = 8, .received = 8, .gradients = 8, .agreed = 8}));
  EXPECT_NO_THROW(progress.begin_step());
}

TEST(StepProgress, InterruptedStepMayBeginAgain) {
  StepProgress progress = progress_at(7);
  progress.begin_step();
  progress.gradients_reduced();
  progress.begin_step();
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .made = 7, .received = 7, .agreed = 7}));
}

TEST(StepProgress, ReplacementHasPiecesWhenAllHaveArrived) {
  StepProgress progress;
  EXPECT_EQ(progress.report(), StepReport{});
  progress.take_values(8, /*evaluated=*/true);
  EXPECT_EQ(progress.report(), (StepReport{.agreed = 8, .evaluated = true}));
  progress.received_all(kPlace);
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .made = 8, .received = 8, .agreed = 8, .evaluated = true}));
}

TEST(StepProgress, FormerLayoutIsKeptUntilTheSwitch) {
  const LayoutPlace next{.layout_number = 1, .rank = 0};
  StepProgress progress = progress_at(7);
  progress.received_all(next);
  EXPECT_EQ(progress.report(), (StepReport{.place = kPlace, .next = next, .made = 7, .received = 7, .agreed = 7}));
  EXPECT_THROW(progress.begin_step(), InternalError);
  progress.switch_layout();
  EXPECT_EQ(progress.report(), (StepReport{.place = next, .made = 7, .received = 7, .agreed = 7}));
  EXPECT_NO_THROW(progress.begin_step());
}

TEST(StepProgress, RankBehindIsAtTheNewStepAfterTheSwitch) {
  const LayoutPlace next{.layout_number = 1, .rank = 0};
  StepProgress progress = progress_at(7);
  progress.take_values(8, /*evaluated=*/false);
  progress.received_all(next);
  EXPECT_EQ(progress.report().made, 7) << "the pieces of the former layout";
  progress.switch_layout();
  EXPECT_EQ(progress.report(), (StepReport{.place = next, .made = 8, .received = 8, .agreed = 8}));
}

TEST(StepProgress, RefusesOtherOrders) {
  StepProgress none;
  EXPECT_THROW(none.begin_step(), InternalError) << "no state";
  EXPECT_THROW(none.received_all(kPlace), InternalError) << "no agreed values";
  StepProgress progress = progress_at(7);
  EXPECT_THROW(progress.agree_passed(), InternalError) << "no gradients";
  EXPECT_THROW(progress.begin_update(), InternalError) << "no agreed values";
  EXPECT_THROW(progress.updated(), InternalError) << "no update";
  EXPECT_THROW(progress.published(), InternalError) << "no update";
  EXPECT_THROW(progress.take_values(6, false), InternalError) << "an earlier step";
  progress = progress_after_agree(8);
  EXPECT_THROW(progress.begin_step(), InternalError) << "the step is not finished";
  EXPECT_THROW(progress.agree_passed(), InternalError) << "passed twice";
  EXPECT_THROW(progress.evaluated(), InternalError) << "the step is not finished";
  progress.begin_update();
  EXPECT_THROW(progress.begin_update(), InternalError) << "updated twice";
}

}  // namespace
}  // namespace ddprun::trainer
