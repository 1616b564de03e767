// Tests how metrics are named, formatted and ordered on consoles and in reports.
#include "common/base/metric.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace ddprun {
namespace {

TEST(Metric, AccuracyIsShownInPercent) {
  EXPECT_EQ(metric_text({"accuracy", 0.9041}), "accuracy 90.41 %");
  EXPECT_EQ(metric_text({"top5_accuracy", 1}), "top5_accuracy 100.00 %");
  EXPECT_EQ(metric_text({"perplexity", 12.34567}), "perplexity 12.3457");
  EXPECT_EQ(metric_text({"loss", std::nan("")}), "loss nan");
}

TEST(Metric, LossIsListedLastAndNotTheHeadline) {
  const MetricList figures{{"loss", 0.5}, {"accuracy", 0.875}, {"error", 2}};
  EXPECT_EQ(metrics_text(figures), "accuracy 87.50 %, error 2.0000, loss 0.5000");
  EXPECT_EQ(headline_of(figures), "accuracy 87.50 %");
  EXPECT_EQ(headline_of({{"loss", 0.5}}), "loss 0.5000");
  EXPECT_EQ(headline_of({}), "");
  EXPECT_EQ(value_of(figures, "error"), 2);
  EXPECT_EQ(value_of(figures, "recall"), std::nullopt);
}

}  // namespace
}  // namespace ddprun
