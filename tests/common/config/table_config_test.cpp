// Tests the defaults of data.type "table", and the rules for its keys.
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"

namespace ddprun {
namespace {

TrainConfig table_config(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "train.json", "/base", overrides);
}

std::string table_refusal(const std::string& text) {
  try {
    table_config(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kTableOnly = R"({"data": {"type": "table", "dir": ".", "target": "price", "predict": "number"}})";

TEST(TableConfig, AConfigMayNameOnlyTheTable) {
  const TrainConfig config = table_config(kTableOnly);
  EXPECT_EQ(config.model.type, ModelConfig::Type::kMlp);
  EXPECT_EQ(config.data.test_table, "");
  EXPECT_EQ(config.min_steps, 1000);
  EXPECT_EQ(config.schedule.type, ScheduleConfig::Type::kCosine);
  EXPECT_EQ(config.optimizer.type, OptimizerConfig::Type::kAdamw);
  ASSERT_EQ(config.optimizer.groups.size(), 1U);
  EXPECT_EQ(config.optimizer.groups[0].parameters, "fc*");
  EXPECT_EQ(config.optimizer.groups[0].lr_scale, 0.03);
}

TEST(TableConfig, GivenKeysReplaceTheDefaults) {
  const TrainConfig config = table_config(
      R"({"data": {"type": "table", "dir": ".", "test_table": "t.csv"}, "model": {"hidden": [7]}, "epochs": 3, "min_steps": 0,
          "optimizer": {"type": "sgd", "lr": 0.5, "weight_decay": 0.25}, "schedule": {"type": "constant"}})");
  EXPECT_EQ(config.data.test_table, "t.csv");
  EXPECT_EQ(config.model.hidden, std::vector<std::int64_t>{7});
  EXPECT_EQ(config.epochs, 3);
  EXPECT_EQ(config.min_steps, 0);
  EXPECT_EQ(config.optimizer.weight_decay, 0.25);
  EXPECT_EQ(config.schedule.type, ScheduleConfig::Type::kConstant);
  EXPECT_EQ(table_config(kTableOnly, {"epochs=7"}).epochs, 7);
}

TEST(TableConfig, ThePrintedConfigIsTheSame) {
  const TrainConfig config = table_config(kTableOnly);
  const TrainConfig again = table_config(to_json_text(config));
  EXPECT_EQ(to_json_text(again), to_json_text(config));
  EXPECT_EQ(config_digest(again), config_digest(config));
}

TEST(TableConfig, OtherDataHasNoSuchDefaults) {
  const TrainConfig config = table_config(R"({"data": {"type": "csv", "dir": "."}, "model": {"type": "mlp"}})");
  EXPECT_EQ(config.min_steps, 0);
  EXPECT_EQ(config.data.test_table, "test.csv");
  EXPECT_EQ(config.optimizer.weight_decay, 0.01);
  EXPECT_TRUE(config.optimizer.groups.empty());
}

TEST(TableConfig, RulesBetweenKeys) {
  EXPECT_NE(table_refusal(R"({"data": {"type": "table", "dir": "."}, "model": {"type": "cnn"}})")
                .find("expected \"mlp\", since the samples of data.type \"table\" are not images, found \"cnn\" (/model/type)"),
            std::string::npos);
  EXPECT_NE(table_refusal(R"({"data": {"type": "csv", "dir": ".", "test_table": ""}, "model": {"type": "mlp"}})")
                .find("expected a string that is not empty, found \"\" (/data/test_table)"),
            std::string::npos);
  EXPECT_NE(table_refusal(R"({"data": {"type": "csv", "dir": ".", "as_number": ["a"]}, "model": {"type": "mlp"}})")
                .find("key 'as_number' is for data type \"table\" only, found type \"csv\" (/data/as_number)"),
            std::string::npos);
  EXPECT_NE(table_refusal(R"({"data": {"type": "table", "dir": ".", "test_fraction": 1}})").find("(/data/test_fraction)"),
            std::string::npos);
}

}  // namespace
}  // namespace ddprun
