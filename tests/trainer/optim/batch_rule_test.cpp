// The factor of each rule, and the places where it changes the learning rate.
#include "trainer/optim/batch_rule.hpp"

#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

using Rule = OptimizerConfig::LrBatchRule;

TrainConfig config_of(Rule rule, std::int64_t batch_size, std::int64_t base) {
  TrainConfig config;
  config.optimizer.lr = 0.1;
  config.optimizer.lr_batch_rule = rule;
  config.optimizer.lr_base_batch = base;
  config.batch_size = batch_size;
  return config;
}

TEST(BatchRule, FactorIsTheRatioItsRootOrOne) {
  EXPECT_EQ(batch_factor(config_of(Rule::kLinear, 1024, 256)), 4);
  EXPECT_EQ(batch_factor(config_of(Rule::kLinear, 64, 256)), 0.25);
  EXPECT_EQ(batch_factor(config_of(Rule::kSquareRoot, 1024, 256)), 2);
  EXPECT_EQ(batch_factor(config_of(Rule::kSquareRoot, 64, 256)), 0.5);
  for (const Rule rule : {Rule::kLinear, Rule::kSquareRoot}) {
    EXPECT_EQ(base_learning_rate(config_of(rule, 256, 256)), 0.1) << "to the bit";
  }
  EXPECT_EQ(base_learning_rate(config_of(Rule::kNone, 1024, 0)), 0.1);
}

TEST(BatchRule, SaysWhatItMakesOfTheRate) {
  EXPECT_EQ(batch_rule_text(config_of(Rule::kSquareRoot, 1024, 256), 1),
            "the learning rate is 0.2: optimizer.lr 0.1 times 2, for batch_size 1024 instead of 256 (square_root); on 1 worker "
            "as on any other number");
  EXPECT_EQ(batch_rule_text(config_of(Rule::kNone, 1024, 0), 2), "");
}

}  // namespace
}  // namespace ddprun::trainer
