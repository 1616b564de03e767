// Tests how the columns of a table are interpreted, and the messages about all problems of a table.
#include "common/tables/make_plan.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/tables/plan_text.hpp"
#include "common/tables/table_rows.hpp"

namespace ddprun {
namespace {

using PlanKind = ColumnPlan::Kind;
using Names = std::vector<std::string>;

class Plan : public testing::Test {
 protected:
  Plan() {
    config_.data.type = DataConfig::Type::kTable;
    config_.data.predict = DataConfig::Predict::kNumber;
    config_.data.target = "y";
    config_.data.test_table = "test.csv";
  }

  PlanResult result_of(const std::string& text) const { return make_plan(text, "t.csv", config_); }

  // Returns a table with a column "x" that has these cells, and a target with the numbers 0, 1, ...
  static std::string table_of(const Names& cells) {
    std::string text = "x,y\n";
    for (std::size_t i = 0; i < cells.size(); ++i) text += "\"" + cells[i] + "\"," + std::to_string(i) + "\n";
    return text;
  }
  ColumnPlan column_of(const Names& cells) const { return result_of(table_of(cells)).plan.columns.at(0); }
  Names problems_of(const Names& cells) const { return result_of(table_of(cells)).problems; }

  TrainConfig config_;
};

Names repeated(const Names& cells, std::size_t times) {
  Names all;
  for (std::size_t i = 0; i < times; ++i) all.insert(all.end(), cells.begin(), cells.end());
  return all;
}

Names numbered(const std::string& name, std::size_t count) {
  Names all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(name + std::to_string(i));
  return all;
}

TEST_F(Plan, NumbersHaveMeanVarianceAndMedian) {
  const ColumnPlan column = column_of({"1", "NA", "1,000", "2.5", "?"});
  EXPECT_EQ(column.kind, PlanKind::kNumber);
  EXPECT_EQ(column.mean, (1 + 1000 + 2.5) / 3);
  EXPECT_EQ(column.median, 2.5);
  EXPECT_NEAR(column.variance,
              ((1 - column.mean) * (1 - column.mean) + (1000 - column.mean) * (1000 - column.mean) +
               (2.5 - column.mean) * (2.5 - column.mean)) /
                  3,
              1e-9);
  EXPECT_TRUE(column.has_missing);
  EXPECT_EQ(column.missing, 2);
  EXPECT_EQ(plain_inputs(column), 2);
  EXPECT_EQ(column_of({"1", "2", "3", "4"}).median, 2.5);
}

TEST_F(Plan, TruthValuesAndDates) {
  const ColumnPlan truth = column_of({"yes", "no", "YES", ""});
  EXPECT_EQ(truth.kind, PlanKind::kTruth);
  EXPECT_EQ(truth.median, 1);
  EXPECT_EQ(truth.mean, 2.0 / 3);
  const ColumnPlan date = column_of({"2024-01-01", "2024-01-03", "2024-01-02 12:00"});
  EXPECT_EQ(date.kind, PlanKind::kDate);
  EXPECT_EQ(date.median, 19724.5);
  EXPECT_EQ(plain_inputs(date), kInputsOfDate);
}

TEST_F(Plan, TextsAreOneHotOrEmbedded) {
  const ColumnPlan few = column_of(repeated({"red", "green", "NA", "blue"}, 5));
  EXPECT_EQ(few.kind, PlanKind::kOneHot);
  EXPECT_EQ(few.categories, (Names{"blue", "green", "red"}));
  EXPECT_EQ(plain_inputs(few), 4);
  EXPECT_EQ(column_of(repeated(numbered("c", 32), 2)).kind, PlanKind::kOneHot);
  const ColumnPlan many = column_of(repeated(numbered("c", 33), 2));
  EXPECT_EQ(many.kind, PlanKind::kEmbedding);
  EXPECT_EQ(embedded_categories(many), 34);
  EXPECT_EQ(embedding_width(34), 6);
  EXPECT_EQ(embedding_width(10'000), 32);
}

TEST_F(Plan, ColumnsThatAreLeftOut) {
  const auto reason = [&](const Names& cells) {
    const ColumnPlan column = column_of(cells);
    return column.kind == PlanKind::kLeftOut ? column.reason : "used";
  };
  EXPECT_EQ(reason({"", "NA", "null"}), "has no values");
  EXPECT_EQ(reason({"5", "5", "5"}), "has one value in all rows");
  EXPECT_EQ(reason({"5", "5", ""}), "used") << "whether the value is missing may be of use";
  EXPECT_EQ(reason(numbered("name ", 11)), "most of its texts occur only once");
  EXPECT_EQ(reason(numbered("name ", 10)), "used") << "too few rows to be sure";
  EXPECT_EQ(reason(repeated(numbered("n", 10'001), 2)), "has more than 10,000 different texts, or a very long one");
  for (const std::string name : {"", "Unnamed: 0", "Unnamed: 12"}) {
    const PlanResult result = result_of(name + ",a,y\n5,1,2\n7,2,3\n");
    EXPECT_EQ(result.problems, Names{});
    EXPECT_EQ(result.plan.columns.at(0).reason, "an index that pandas or R wrote") << name;
  }
}

TEST_F(Plan, AUserOverridesTheRules) {
  config_.data.as_one_hot = {"zip"};
  config_.data.as_embedding = {"code"};
  config_.data.as_number = {"size", ""};
  config_.data.leave_out = {"id"};
  config_.data.missing_values = {"-9"};
  const PlanResult result = result_of(",zip,code,size,id,old,y\n3,10,1,5,1,-9,1\n4,20,2,large,2,1,2\n6,10,3,7,3,2,3\n");
  EXPECT_EQ(result.problems, Names{});
  std::map<std::string, ColumnPlan> columns;
  for (const ColumnPlan& column : result.plan.columns) columns[column.name] = column;
  EXPECT_EQ(columns.at("").kind, PlanKind::kNumber);
  EXPECT_EQ(columns.at("zip").categories, (Names{"10", "20"}));
  EXPECT_EQ(columns.at("code").kind, PlanKind::kEmbedding);
  EXPECT_EQ(columns.at("size").missing, 1);
  EXPECT_TRUE(columns.at("size").missing_if_invalid && columns.at("size").has_missing);
  EXPECT_EQ(columns.at("id").reason, "data.leave_out");
  EXPECT_EQ(columns.at("old").missing, 1);
}

TEST_F(Plan, CellsThatAreProbablyErrors) {
  EXPECT_EQ(problems_of({"3,5", "4", "7,25"}),
            Names{"line 2: column 'x': '3,5' has a decimal comma. Write numbers as 1234.5 and dates as 2024-02-29, or add the "
                  "column to data.as_one_hot or data.leave_out"});
  EXPECT_TRUE(problems_of({"2024-01-01", "3/4/2024"})
                  .at(0)
                  .starts_with("line 3: column 'x': '3/4/2024' is a date whose order of day and month is unknown. Write"));
  EXPECT_TRUE(problems_of({"5", "12 %"}).at(0).starts_with("line 3: column 'x': '12 %' has a unit"));
  Names cells = repeated({"1", "2", "3"}, 3);
  cells.push_back("oops");
  EXPECT_EQ(problems_of(cells),
            Names{"line 11: column 'x': 'oops' is not a number, but 9 of 10 values are. Correct it, add it to "
                  "data.missing_values, or add the column to data.as_number or data.as_one_hot"});
  cells = repeated({"2024-01-01", "2024-01-02", "2024-01-03"}, 3);
  cells.push_back("2024-02-30");
  EXPECT_TRUE(problems_of(cells).at(0).starts_with("line 11: column 'x': '2024-02-30' is not a date such as 2024-02-29"));
  EXPECT_TRUE(
      problems_of({"gr\xfcn", "rot", "rot", "gr\xfcn"}).at(0).starts_with("line 2: column 'x': 'gr\\xfcn' is not UTF-8"))
      << problems_of({"gr\xfcn", "rot", "rot", "gr\xfcn"}).at(0);
}

// One message must contain all problems, so that the user need not start the run once for each problem.
TEST_F(Plan, AllProblemsAreInOneMessage) {
  config_.data.leave_out = {"nowhere", "y"};
  config_.data.as_number = {"color"};
  const PlanResult result = result_of("price,color,when,y\n\"1,5\",red,1/2/2024,1\n\"2,5\",blue,3/4/2024,two\n1,2\n3,red\n");
  EXPECT_EQ(
      problems_text(result, "t.csv"),
      "t.csv: 7 problems:\n"
      "  data.leave_out names the column 'nowhere', which the table does not have\n"
      "  data.leave_out names the column 'y', which is data.target\n"
      "  line 4: expected 4 cells, as in the header, found 2; 1 more such lines\n"
      "  line 2: column 'price': '1,5' has a decimal comma. Write numbers as 1234.5 and dates as 2024-02-29, or add the "
      "column to data.as_one_hot or data.leave_out\n"
      "  column 'color': has no number, but data.as_number names the column\n"
      "  line 2: column 'when': '1/2/2024' is a date whose order of day and month is unknown. Write numbers as 1234.5 and "
      "dates as 2024-02-29, or add the column to data.as_one_hot or data.leave_out\n"
      "  line 3: column 'y': expected a number to predict, found 'two'. Correct it, add it to data.missing_values, or set "
      "data.predict to \"class\"\n"
      "The columns were interpreted as follows:\n"
      "  column  interpreted as  values                  missing  inputs\n"
      "  y       target, number  mean 0\n"
      "  price   left out        see the problems above  0        0\n"
      "  color   left out        see the problems above  0        0\n"
      "  when    left out        see the problems above  0        0\n");
}

TEST_F(Plan, TheTargetMayBeANumber) {
  const PlanResult result = result_of("a,y\n1,10\n2,NA\n3,\"1,010\"\n");
  EXPECT_EQ(result.plan.target.mean, 510);
  EXPECT_EQ(result.plan.target.variance, 250'000);
  EXPECT_EQ(result.plan.rows, 2);
  EXPECT_EQ(result.notes, Names{"training rows without a value in 'y', which are not used: 1"});
  EXPECT_EQ(result_of("a,y\n1,5\n2,5\n").problems, Names{"column 'y': all values to predict are equal"});
  EXPECT_THROW(result_of("a,y\n1,NA\n"), UsageError);
  EXPECT_EQ(result_of("a,y\n1,1\n1,2\n").problems, Names{"no column is left from which 'y' can be predicted"});
}

TEST_F(Plan, TheTargetMayBeAClass) {
  config_.data.predict = DataConfig::Predict::kClass;
  const TargetPlan text = result_of("a,y\n1,yes\n2,no\n3,yes\n").plan.target;
  EXPECT_EQ(text.classes, (Names{"no", "yes"}));
  EXPECT_EQ(text.most_frequent, 1);
  EXPECT_EQ(result_of("a,y\n1,10\n2,9\n3,100\n").plan.target.classes, (Names{"9", "10", "100"})) << "ordered as numbers";
  EXPECT_EQ(result_of("a,y\n1,x\n2,x\n").problems, Names{"column 'y': expected at least 2 classes, found 1"});
  std::string many = "a,y\n";
  for (int i = 0; i < 101; ++i) many += std::to_string(i) + "," + std::to_string(i) + "\n";
  EXPECT_EQ(
      result_of(many).problems,
      Names{"column 'y': has 101 different values, too many for classes. To predict a number, set data.predict to \"number\"; "
            "to predict classes, list them in data.class_names"});
  config_.data.class_names = {"yes", "no"};
  EXPECT_EQ(result_of("a,y\n1,yes\n2,no\n3,maybe\n").problems,
            Names{"column 'y': has the value 'maybe', which data.class_names does not contain"});
}

// Rows that are held out for validation affect no statistics. Their classes are known.
TEST_F(Plan, OnlySelectedRowsCount) {
  const std::string text = "a,c,y\n1,u,1\n100,v,100\n3,w,3\n";
  const PlanResult result = make_plan(text, "t.csv", config_, [](std::int64_t row) { return row != 1; });
  EXPECT_EQ(result.plan.columns.at(0).mean, 2);
  EXPECT_EQ(result.plan.columns.at(1).categories, (Names{"u", "w"}));
  EXPECT_EQ(result.plan.target.mean, 2);
  config_.data.predict = DataConfig::Predict::kClass;
  const PlanResult classes = make_plan(text, "t.csv", config_, [](std::int64_t row) { return row != 1; });
  EXPECT_EQ(classes.plan.target.classes, (Names{"1", "3", "100"}));
}

TEST_F(Plan, TheColumnsAsATable) {
  const PlanResult result = result_of("id,fuel,new,power,y\n1,gas,yes,70,1\n2,diesel,no,,2\n3,gas,no,90,4\n");
  EXPECT_EQ(plan_text(result.plan),
            "  column  interpreted as  values              missing  inputs\n"
            "  y       target, number  mean 2.33333\n"
            "  id      number          mean 2, median 2    0        1\n"
            "  fuel    one-hot         diesel, gas         0        2\n"
            "  new     true or false   33.3 % true         0        1\n"
            "  power   number          mean 80, median 80  1        2\n");
  EXPECT_TRUE(plan_text(result.plan, 1).ends_with("  and 3 more columns\n"));
}

TEST_F(Plan, OtherFormatsAreRefusedWithTheConversion) {
  const auto refusal = [&](const std::string& text) -> std::string {
    try {
      make_plan(text, "d/t.parquet", config_);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("PAR1\x15"),
            "d/t.parquet: is a Parquet file; expected CSV. Convert it with: python3 -c \"import pandas; "
            "pandas.read_parquet('d/t.parquet').to_csv('d/t.csv', index=False)\"");
  EXPECT_EQ(refusal("\x1f\x8b\x08"),
            "d/t.parquet: is compressed with gzip; expected CSV. Decompress it with: gunzip 'd/t.parquet'");
  EXPECT_TRUE(refusal("a;y\n1;2\n").ends_with("The columns of a table must be separated by commas"));
}

// Whether a row is a test row depends only on the seed and on the row's number.
TEST_F(Plan, ATestPartIsChosenBySeed) {
  config_.data.test_table = "";
  std::int64_t tests = 0, equal = 0;
  for (std::int64_t row = 0; row < 10'000; ++row) {
    tests += is_test_row(1, row, 0.2) ? 1 : 0;
    equal += is_test_row(1, row, 0.2) == is_test_row(2, row, 0.2) ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(tests), 2000, 150);
  EXPECT_NEAR(static_cast<double>(equal), 6800, 200);
  std::string text = "a,y\n";
  for (int i = 0; i < 1000; ++i) text += std::to_string(i) + "," + std::to_string(i) + "\n";
  const std::string file = "t.csv";
  std::int64_t rows_of_parts[2]{};
  for (const TablePart part : {TablePart::kTrain, TablePart::kTest}) {
    TableRows rows(text, file, config_, part);
    while (rows.next()) {
    }
    rows_of_parts[part == TablePart::kTest ? 1 : 0] = rows.used();
  }
  EXPECT_EQ(rows_of_parts[0] + rows_of_parts[1], 1000);
  EXPECT_NEAR(static_cast<double>(rows_of_parts[1]), 200, 50);
  EXPECT_EQ(result_of(text).plan.rows, rows_of_parts[0]);
}

}  // namespace
}  // namespace ddprun
