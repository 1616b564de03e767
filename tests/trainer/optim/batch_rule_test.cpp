// Tests the factor by which each batch rule scales the learning rate, and the message about it.
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

TEST(BatchRule, DescribesTheScaledRate) {
  EXPECT_EQ(batch_rule_text(config_of(Rule::kSquareRoot, 1024, 256), 1),
            "the learning rate is 0.2: optimizer.lr 0.1 times 2, because batch_size is 1024 and optimizer.lr_base_batch is "
            "256 (optimizer.lr_batch_rule square_root); it does not depend on the number of workers (now 1 worker)");
  EXPECT_EQ(batch_rule_text(config_of(Rule::kNone, 1024, 0), 2), "");
}

}  // namespace
}  // namespace ddprun::trainer
