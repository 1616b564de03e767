// Tests which inputs the encoder computes from the cells of a row.
#include "trainer/tables/encode_row.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string_view>

#include "trainer/tables/plan_json.hpp"

namespace ddprun::trainer {
namespace {

using Kind = ColumnPlan::Kind;
using Inputs = std::vector<float>;

TablePlan plan_with(ColumnPlan column) {
  return {.columns = {std::move(column)}, .target = {.name = "y"}, .missing_values = {"-9"}, .rows = 3};
}

// Returns the inputs for a cell. The plan has only one column.
Inputs inputs_of(const TablePlan& plan, std::string_view cell) {
  Inputs inputs(static_cast<std::size_t>(width_of(plan).all()), 7);
  std::vector<std::size_t> misfits;
  RowEncoder(plan).encode(std::vector{cell}, inputs, misfits);
  EXPECT_TRUE(misfits.empty()) << cell;
  return inputs;
}

TEST(EncodeRow, NumbersAreStandardizedAndImputed) {
  TablePlan plan = plan_with({.name = "a", .kind = Kind::kNumber, .mean = 10, .variance = 4, .median = 8});
  EXPECT_EQ(inputs_of(plan, " 12 "), Inputs{1});
  EXPECT_EQ(inputs_of(plan, "1,010"), Inputs{500});
  EXPECT_EQ(inputs_of(plan, "NA"), Inputs{-1}) << "the median";
  plan.columns[0].has_missing = true;
  EXPECT_EQ(inputs_of(plan, "12"), (Inputs{1, 0}));
  EXPECT_EQ(inputs_of(plan, "-9"), (Inputs{-1, 1}));
  plan.columns[0].variance = 0;
  EXPECT_EQ(inputs_of(plan, "12"), (Inputs{2, 0})) << "not divided";
}

TEST(EncodeRow, TruthValues) {
  const TablePlan plan = plan_with({.name = "a", .kind = Kind::kTruth, .mean = 0.5, .variance = 0.25, .median = 1});
  EXPECT_EQ(inputs_of(plan, "yes"), Inputs{1});
  EXPECT_EQ(inputs_of(plan, "False"), Inputs{-1});
  EXPECT_EQ(inputs_of(plan, ""), Inputs{1});
}

TEST(EncodeRow, DatesHaveADayASeasonAndAWeekday) {
  const TablePlan plan =
      plan_with({.name = "a", .kind = Kind::kDate, .mean = 0, .variance = 1, .median = 2, .has_missing = true});
  EXPECT_EQ(inputs_of(plan, "1970-01-01"), (Inputs{0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0})) << "a Thursday";
  EXPECT_EQ(inputs_of(plan, "1969-12-29")[3], 1) << "a Monday";
  const double angle = 2 * std::numbers::pi * 31 / 365.2425;
  EXPECT_FLOAT_EQ(inputs_of(plan, "1970-02-01")[1], static_cast<float>(std::sin(angle)));
  EXPECT_EQ(inputs_of(plan, "?"), (Inputs{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
}

TEST(EncodeRow, CategoriesMayBeUnknownOrMissing) {
  TablePlan plan = plan_with({.name = "a", .kind = Kind::kOneHot, .categories = {"blue", "red"}});
  EXPECT_EQ(inputs_of(plan, "red"), (Inputs{0, 1}));
  EXPECT_EQ(inputs_of(plan, "pink"), (Inputs{0, 0}));
  EXPECT_EQ(inputs_of(plan, ""), (Inputs{0, 0}));
  plan.columns[0].has_missing = true;
  EXPECT_EQ(inputs_of(plan, "blue"), (Inputs{1, 0, 0}));
  EXPECT_EQ(inputs_of(plan, ""), (Inputs{0, 0, 1}));
  plan.columns[0].kind = Kind::kEmbedding;
  EXPECT_EQ(inputs_of(plan, "pink"), Inputs{0});
  EXPECT_EQ(inputs_of(plan, "blue"), Inputs{1});
  EXPECT_EQ(inputs_of(plan, "NA"), Inputs{3});
}

TEST(EncodeRow, CodesFollowTheOtherInputs) {
  TablePlan plan = plan_with({.name = "a", .kind = Kind::kEmbedding, .categories = {"u", "v"}});
  plan.columns.push_back({.name = "left", .kind = Kind::kLeftOut});
  plan.columns.push_back({.name = "b", .kind = Kind::kNumber});
  Inputs inputs(2);
  std::vector<std::size_t> misfits;
  RowEncoder(plan).encode(std::vector<std::string_view>{"v", "anything", "5"}, inputs, misfits);
  EXPECT_EQ(inputs, (Inputs{5, 2}));
}

TEST(EncodeRow, MisfitsAreReportedUnlessTheUserAcceptsThem) {
  TablePlan plan = plan_with({.name = "a", .kind = Kind::kNumber, .median = 3});
  Inputs inputs(1);
  std::vector<std::size_t> misfits;
  RowEncoder(plan).encode(std::vector<std::string_view>{"x"}, inputs, misfits);
  EXPECT_EQ(misfits, std::vector<std::size_t>{0});
  plan.columns[0].missing_if_invalid = true;
  EXPECT_EQ(inputs_of(plan, "x"), Inputs{3});
}

TEST(EncodeRow, Classes) {
  TablePlan plan = plan_with({.name = "a", .kind = Kind::kNumber});
  plan.target = {.name = "y", .is_class = true, .classes = {"no", "yes"}};
  const RowEncoder encoder(plan);
  EXPECT_EQ(encoder.class_of(" yes"), 1);
  EXPECT_EQ(encoder.class_of("maybe"), -1);
}

TEST(PlanJson, EveryBitIsKept) {
  TablePlan plan = plan_with({.name = "a \"quoted\"",
                              .kind = Kind::kNumber,
                              .mean = 0.1,
                              .variance = 1.0 / 3,
                              .median = 1e-300,
                              .has_missing = true,
                              .missing_if_invalid = true,
                              .missing = 4,
                              .different = -1});
  plan.columns.push_back({.name = "", .kind = Kind::kLeftOut, .reason = "why"});
  plan.columns.push_back({.name = "gr\xc3\xbcn", .kind = Kind::kOneHot, .categories = {"", "x"}, .different = 2});
  plan.target = {.name = "y", .mean = 1.0 / 7, .variance = 1e308};
  EXPECT_EQ(plan_from_json(plan_json(plan)), plan);
  plan.target = {.name = "y", .is_class = true, .classes = {"a", "b"}, .most_frequent = 1};
  EXPECT_EQ(plan_from_json(plan_json(plan)), plan);
}

TEST(PlanJson, OtherTextsAreRefused) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      plan_from_json(text);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(refusal("{").starts_with("is not a valid column plan ("));
  EXPECT_TRUE(refusal("{}").starts_with("is not a valid column plan ("));
  EXPECT_EQ(refusal(R"({"format": 2})"), "has format 2; this version of ddprun reads format 1");
  std::string text = plan_json(plan_with({.name = "a"}));
  text.replace(text.find("\"number\"", text.find("columns")), 8, "\"numbers\"");
  EXPECT_EQ(refusal(text), "has a column of the unknown kind \"numbers\"");
}

}  // namespace
}  // namespace ddprun::trainer
