// Tests the samples of data.type "table", the plan that is read when the run is started again, and the messages about cells
// that do not match the plan.
#include "trainer/tables/table_file.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "trainer/splits/held_out.hpp"
#include "trainer/tables/plan_json.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using test::write_text;

class TableFile : public testing::Test {
 protected:
  TableFile() {
    config_.data.type = DataConfig::Type::kTable;
    config_.data.dir = folder_.path();
    config_.data.predict = DataConfig::Predict::kNumber;
    config_.data.target = "y";
    config_.data.test_table = "test.csv";
  }

  void write(const std::string& name, const std::string& text) { write_text(folder_ / name, text); }

  static Batch all_of(const Source& source) {
    std::vector<std::int64_t> samples(static_cast<std::size_t>(source.size()));
    std::iota(samples.begin(), samples.end(), 0);
    return source.make(samples, {});
  }

  std::string refusal() const {
    try {
      read_table(config_);
    } catch (const UsageError& error) {
      const std::string text = error.what(), folder = folder_.path().string() + "/";
      return text.starts_with(folder) ? text.substr(folder.size()) : text;
    }
    return "";
  }

  TemporaryFolder folder_;
  TrainConfig config_;
};

TEST_F(TableFile, TheTestRowsAreEncodedByThePlanOfTheTrainingRows) {
  write("train.csv", ",a,c,y\n1,0,u,10\n2,4,v,30\n3,NA,u,\n");
  write("test.csv", "y,c,a\n7,v,6\n8,w,\n");
  const Sources data = read_table(config_);
  EXPECT_TRUE(at::equal(all_of(*data.train).tensors[0], at::tensor({-1.0F, 1.0F, 0.0F, 1.0F, 0.0F, 1.0F}).view({2, 3})));
  EXPECT_TRUE(at::equal(all_of(*data.train).tensors[1], at::tensor({10.0F, 30.0F}).view({2, 1})));
  EXPECT_TRUE(at::equal(all_of(*data.test).tensors[0], at::tensor({2.0F, 0.0F, 1.0F, 0.0F, 0.0F, 0.0F}).view({2, 3})));
  const Description description = describe_table(config_);
  EXPECT_EQ(description.tensors[0].sizes, std::vector<std::int64_t>{3});
  EXPECT_EQ(plan_json(*description.table), data.plan);
  ASSERT_EQ(data.notes.size(), 2U);
  EXPECT_EQ(data.notes[0], "training rows without a value in 'y', which are not used: 1");
  EXPECT_NE(data.notes[1].find("2 rows to train on, 2 rows to test on in test.csv"), std::string::npos) << data.notes[1];
}

TEST_F(TableFile, ClassesMayBeText) {
  config_.data.predict = DataConfig::Predict::kClass;
  write("train.csv", "a,y\n0,yes\n4,no\n5,yes\n");
  write("test.csv", "a,y\n7,no\n8,unknown\n");
  const Sources data = read_table(config_);
  EXPECT_TRUE(at::equal(all_of(*data.train).tensors[1], at::tensor({1L, 0L, 1L}, at::kLong)));
  EXPECT_EQ(data.test->size(), 1);
  EXPECT_EQ(data.notes[0], "test rows that are not used, since the training rows lack their class: 1");
}

// A resumed run must encode rows in the same way as at its start, even if the table has changed.
TEST_F(TableFile, AStoredPlanIsUsed) {
  write("train.csv", "a,y\n0,1\n2,3\n");
  write("test.csv", "a,y\n1,2\n");
  config_.data.columns_file = folder_ / "columns.json";
  write("columns.json", read_table(config_).plan);
  write("train.csv", "a,y\n0,1\n6,3\n");
  EXPECT_TRUE(at::equal(all_of(*read_table(config_).train).tensors[0], at::tensor({-1.0F, 5.0F}).view({2, 1})));
  write("columns.json", "{}");
  EXPECT_TRUE(refusal().starts_with("columns.json is not a valid column plan"));
}

TEST_F(TableFile, HeldOutSamplesDoNotAffectStatistics) {
  std::string text = "a,y\n";
  for (int i = 0; i < 10; ++i) text += std::to_string(i * i) + "," + std::to_string(i) + "\n";
  write("train.csv", text);
  write("test.csv", "a,y\n1,2\n");
  config_.data.validation.samples = 3;
  double sum = 0;
  for (const std::int64_t i : split_samples(config_, 10).train) sum += static_cast<double>(i * i);
  EXPECT_EQ(describe_table(config_).table->columns.at(0).mean, sum / 7);
  EXPECT_EQ(hold_out(read_table(config_), config_).validation->size(), 3);
}

TEST_F(TableFile, AllCellsThatDoNotFitAreInOneMessage) {
  write("train.csv", "a,t,d,y\n1,yes,2024-01-01,1\n2,no,2024-01-02,2\n3,no,2024-01-03,3\n");
  write("test.csv", "a,t,d,y\n1,yes,2024-01-01,x\n\"1,5\",maybe,soon,2\n1,2\n");
  const std::string text = refusal();
  for (const char* line :
       {"test.csv: 5 problems:\n", "line 4: expected 4 cells, as in the header, found 2\n",
        "line 3: column 'a': expected a number, as in the training rows, found '1,5', which has a decimal comma\n",
        "line 3: column 't': expected true or false (yes or no), as in the training rows, found 'maybe'\n",
        "line 3: column 'd': expected a date such as 2024-02-29, as in the training rows, found 'soon'\n",
        "line 2: column 'y': expected a number, found 'x'\n", "interpreted as"}) {
    EXPECT_NE(text.find(line), std::string::npos) << text;
  }
  write("test.csv", "a,y\n1,1\n");
  EXPECT_EQ(refusal(), "test.csv: lacks columns that the training file has: 't', 'd'");
  write("test.csv", "a,t,d,y\n");
  EXPECT_EQ(refusal(), "test.csv: has no rows to evaluate on");
}

TEST_F(TableFile, OneFileHasBothParts) {
  config_.data.test_table = "";
  std::string text = "a,y\n";
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + "," + std::to_string(i) + "\n";
  write("train.csv", text);
  const Sources data = read_table(config_);
  EXPECT_EQ(data.train->size() + data.test->size(), 100);
  EXPECT_GT(data.test->size(), 5);
  write("train.csv", "a,y\n1,1\n2,2\n");
  config_.data.test_fraction = 1e-9;
  EXPECT_EQ(refusal(), "train.csv: has no rows to evaluate on; check data.test_fraction, or set data.test_table");
}

}  // namespace
}  // namespace ddprun::trainer
