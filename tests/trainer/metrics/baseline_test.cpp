// Tests the lines that compare the metrics of a model with the metrics of a constant prediction.
#include "trainer/metrics/baseline.hpp"

#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

using Lines = std::vector<std::string>;

TEST(Baseline, EachMetricWithABaselineHasALine) {
  EXPECT_EQ(baseline_lines({{"loss", 0.5}, {"accuracy", 0.9}}), Lines{});
  EXPECT_EQ(baseline_lines(
                {{"loss", 3.25}, {"mean_absolute_error", 812}, {"baseline_loss", 9}, {"baseline_mean_absolute_error", 5970}}),
            (Lines{"test loss 3.25; always the mean: 9", "test mean_absolute_error 812; always the mean: 5970"}));
  EXPECT_EQ(baseline_lines({{"loss", 0.5}, {"accuracy", 0.9}, {"baseline_accuracy", 0.625}}),
            Lines{"test accuracy 90.00 %; always the most frequent class: 62.50 %"});
}

TEST(Baseline, AModelThatIsNotBetterHasAWarning) {
  EXPECT_EQ(
      baseline_lines({{"loss", 7039}, {"baseline_loss", 5970}}),
      Lines{"test loss 7039; always the mean: 5970. Warning: the model is not better than this constant prediction. Check the "
            "columns, or train longer (epochs)"});
  EXPECT_NE(baseline_lines({{"accuracy", 0.5}, {"baseline_accuracy", 0.5}}).at(0).find("Warning"), std::string::npos);
}

}  // namespace
}  // namespace ddprun::trainer
