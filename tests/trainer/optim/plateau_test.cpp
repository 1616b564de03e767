// Tests that the plateau schedule is bit-identical to the schedule of PyTorch (golden.json), and that early stopping ends a
// run.
#include "trainer/optim/plateau.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "tests/trainer/optim/golden.hpp"

namespace ddprun::trainer {
namespace {

ScheduleConfig plateau_of(const nlohmann::json& settings) {
  ScheduleConfig config{.type = ScheduleConfig::Type::kPlateau};
  config.mode = settings.value("mode", "min") == "max" ? MetricMode::kMax : MetricMode::kMin;
  config.factor = settings.value("factor", config.factor);
  config.patience = settings.value("patience", config.patience);
  config.threshold = settings.value("threshold", config.threshold);
  if (settings.value("threshold_mode", "rel") == "abs") config.threshold_mode = ScheduleConfig::ThresholdMode::kAbs;
  config.cooldown = settings.value("cooldown", config.cooldown);
  config.min_lr = settings.value("min_lr", config.min_lr);
  config.eps = settings.value("eps", config.eps);
  return config;
}

TEST(Plateau, EqualsPyTorchsBitForBit) {
  for (const nlohmann::json& entry : golden()["plateau"]) {
    const ScheduleConfig config = plateau_of(entry["settings"]);
    Plateau plateau = initial_plateau(config, entry["lr"]);
    for (std::size_t i = 0; i < entry["figures"].size(); ++i) {
      const nlohmann::json& figure = entry["figures"][i];
      plateau = after_evaluation(config, plateau, figure.is_null() ? std::nan("") : figure.get<double>());
      EXPECT_EQ(plateau.lr, std::strtod(entry["rates"][i].get<std::string>().c_str(), nullptr))
          << entry["settings"] << " after evaluation " << i;
    }
  }
}

TEST(Plateau, TheNameDecidesTheDirectionByDefault) {
  EXPECT_TRUE(higher_is_better(MetricMode::kAuto, "top5_accuracy"));
  EXPECT_FALSE(higher_is_better(MetricMode::kAuto, "loss"));
  EXPECT_TRUE(higher_is_better(MetricMode::kMax, "loss"));
  EXPECT_FALSE(higher_is_better(MetricMode::kMin, "accuracy"));
}

// Returns the number of evaluations after which early stopping ends the run, or 0 if early stopping does not end the run.
std::size_t ends_after(const EarlyStoppingConfig& config, const std::vector<double>& figures) {
  EarlyStop waiting = initial_early_stop(config);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    waiting = after_evaluation(config, waiting, figures[i]);
    if (patience_exhausted(config, waiting)) return i + 1;
  }
  return 0;
}

TEST(EarlyStopping, EndsAfterPatienceEvaluationsWithoutImprovement) {
  EXPECT_EQ(ends_after({.patience = 2}, {1.0, 0.9, 0.95, 0.8, 0.8, 0.81, 0.5}), 6U);
  EXPECT_EQ(ends_after({.patience = 1}, {1.0, 1.0}), 2U) << "an equal one is none";
  EXPECT_EQ(ends_after({.patience = 2, .min_delta = 0.1}, {1.0, 0.95, 0.92}), 3U);
  EXPECT_EQ(ends_after({.patience = 2, .metric = "accuracy"}, {0.5, 0.6, 0.55, 0.6}), 4U);
  EXPECT_EQ(ends_after({.patience = 3}, {1.0, std::nan(""), std::nan(""), std::nan("")}), 4U)
      << "a NaN never counts as an improvement";
  EXPECT_EQ(ends_after({.patience = 3}, {std::nan(""), 1.0, 0.9}), 0U);
  EXPECT_EQ(ends_after({.patience = 0}, {1.0, 1.0, 1.0, 1.0}), 0U);
}

}  // namespace
}  // namespace ddprun::trainer
