// Tests samples from CSV files: their values, and error messages that name file, line and column.
#include "trainer/tables/csv_file.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "trainer/splits/held_out.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using test::write_text;

// The end of messages about values that are not numbers.
const std::string kTable = ". Set data.type to \"table\", which reads text, dates and missing values";

class Csv : public testing::Test {
 protected:
  Csv() {
    config_.data.type = DataConfig::Type::kCsv;
    config_.data.dir = folder_.path();
    config_.data.target = "y";
    config_.data.standardize = false;
    write("test.csv", "a,b,y\n1,2,0\n");
  }

  void write(const std::string& name, const std::string& text) { write_text(folder_ / name, text); }

  Batch all_of(const Source& source) const {
    std::vector<std::int64_t> samples(static_cast<std::size_t>(source.size()));
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::int64_t>(i);
    return source.make(samples, {});
  }

  // Returns the error message without the folder.
  std::string refusal() const {
    try {
      read_csv(config_);
    } catch (const UsageError& error) {
      const std::string text = error.what();
      const std::string folder = folder_.path().string() + "/";
      return text.starts_with(folder) ? text.substr(folder.size()) : text;
    }
    return "";
  }

  std::string refusal_of(const std::string& train) {
    write("train.csv", train);
    return refusal();
  }

  TemporaryFolder folder_;
  TrainConfig config_;
};

TEST_F(Csv, ColumnsAreFoundByName) {
  write("train.csv",
        "\xef\xbb\xbf"
        "a, y ,\"b\"\r\n1.5,2,-3e1\r\n\r\n\" +4\",0,.5\n");
  write("test.csv", "y,b,a\n7,8,9");
  const Sources data = read_csv(config_);
  const Batch train = all_of(*data.train), test = all_of(*data.test);
  EXPECT_TRUE(at::equal(train.tensors[0], at::tensor({1.5F, -30.0F, 4.0F, 0.5F}).view({2, 2})));
  EXPECT_TRUE(at::equal(train.tensors[1], at::tensor({2L, 0L}, at::kLong)));
  EXPECT_TRUE(at::equal(test.tensors[0], at::tensor({9.0F, 8.0F}).view({1, 2})));
  EXPECT_EQ(train.weight, 2);
  EXPECT_EQ(describe_csv(config_.data).tensors[0].sizes, std::vector<std::int64_t>{2});
}

TEST_F(Csv, ClassesMayHaveNamesAndNumbersArePredictedAsFloats) {
  write("train.csv", "a,b,y\n1,2,\"a \"\"cat\"\", or\"\n3,4,dog\n");
  write("test.csv", "a,b,y\n1,2,dog\n");
  config_.data.class_names = {"dog", "a \"cat\", or"};
  EXPECT_TRUE(at::equal(all_of(*read_csv(config_).train).tensors[1], at::tensor({1L, 0L}, at::kLong)));
  config_.data.class_names.clear();
  config_.data.predict = DataConfig::Predict::kNumber;
  config_.data.target = "b";
  config_.data.leave_out = {"y"};
  const Sources data = read_csv(config_);
  EXPECT_TRUE(at::equal(all_of(*data.train).tensors[1], at::tensor({2.0F, 4.0F}).view({2, 1})));
  EXPECT_EQ(data.train->describe().tensors[0].sizes, std::vector<std::int64_t>{1});
  EXPECT_EQ(data.train->describe().tensors[1].sizes, describe_csv(config_.data).tensors[1].sizes);
}

// The mean and the standard deviation are computed from the training rows only. The test set and the held-out samples are not
// used. A column in which all values are equal is not divided by its deviation of 0.
TEST_F(Csv, ColumnsAreStandardisedByTheTrainingRows) {
  std::string text = "a,b,y\n";
  for (int i = 0; i < 10; ++i) text += std::to_string(i * i) + ",7,0\n";
  write("train.csv", text);
  write("test.csv", "a,b,y\n1000,9,0\n");
  config_.data.standardize = true;
  config_.data.validation.samples = 3;
  double sum = 0, squares = 0;
  const SplitSamples split = split_samples(config_, 10);
  for (const std::int64_t i : split.train) sum += static_cast<double>(i * i);
  for (const std::int64_t i : split.train) squares += std::pow(static_cast<double>(i * i) - sum / 7, 2);
  const auto standardised = [&](double value) { return static_cast<float>((value - sum / 7) / std::sqrt(squares / 7)); };
  const Sources data = read_csv(config_);
  const at::Tensor train = all_of(*data.train).tensors[0], test = all_of(*data.test).tensors[0];
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(train[i][0].item<float>(), standardised(i * i)) << i;
    EXPECT_EQ(train[i][1].item<float>(), 0) << i;
  }
  EXPECT_EQ(test[0][0].item<float>(), standardised(1000));
  EXPECT_EQ(test[0][1].item<float>(), 2);
}

// A rounded sum of equal numbers would give a mean that differs slightly from these numbers, so their standard deviation would
// not be 0.
TEST_F(Csv, AConstantColumnIsNotDivided) {
  std::string text = "a,y\n";
  for (int i = 0; i < 803; ++i) text += "0.1,0\n";
  write("train.csv", text);
  write("test.csv", "a,y\n0.2,0\n");
  config_.data.standardize = true;
  const Sources data = read_csv(config_);
  EXPECT_EQ(all_of(*data.train).tensors[0].abs().max().item<float>(), 0);
  EXPECT_NEAR(all_of(*data.test).tensors[0].item<float>(), 0.1F, 1e-6F);
}

TEST_F(Csv, ErrorsAreNamedWithTheirPosition) {
  EXPECT_EQ(refusal_of("a,b,y\n1,2,0\n1,x,0\n"), "train.csv:3: column 'b': expected a number, found 'x'" + kTable);
  EXPECT_EQ(refusal_of("a,b,y\n1,nan,0\n"), "train.csv:2: column 'b': expected a finite number, found 'nan'" + kTable);
  EXPECT_EQ(refusal_of("a,b,y\n1,1e39,0\n"), "train.csv:2: column 'b': expected a finite number, found '1e39'" + kTable);
  EXPECT_EQ(
      refusal_of("a,b,y\n1, ,0\n"),
      "train.csv:2: column 'b': expected a number, found an empty field. Fill it in, remove the line, or add the column to "
      "data.leave_out" +
          kTable);
  EXPECT_EQ(refusal_of("a,b,y\n\n\"1\n\",2,0\n"), "train.csv:3: column 'a': expected a number, found '1\\u000a'" + kTable);
  EXPECT_EQ(refusal_of("a,b,y\n1,2\n"), "train.csv:2: expected 3 fields, as in the header, found 2");
  EXPECT_EQ(refusal_of("a,b,y\n1,2,10\n"),
            "train.csv:2: column 'y': expected a class from 0 to 9 (data.classes), found '10'. For class names set "
            "data.class_names; for numbers set data.predict to \"number\"");
  EXPECT_EQ(refusal_of("a,b,y\n1,\"2,0\n"), "train.csv:2: a quote is opened in this line and never closed");
  EXPECT_EQ(refusal_of("a,b,y\n1,\"2\"3,0\n"), "train.csv:2: expected a comma or the end of the line after \"2\", found '3'");
  EXPECT_EQ(refusal_of("a,b,z\n1,2,0\n"),
            "train.csv: has no column 'y', which data.target names; its columns are 'a', 'b', 'z'");
  EXPECT_EQ(refusal_of("a,a,y\n1,2,0\n"), "train.csv:1: two columns are called 'a'");
  EXPECT_EQ(refusal_of("y\n0\n"), "train.csv: expected at least one input column to predict 'y' from; its columns are 'y'");
  EXPECT_EQ(refusal_of("a,b,y\n"), "train.csv: has a header but no lines of data");
  EXPECT_EQ(refusal_of("\n"), "train.csv: has no lines; expected a header that names the columns");
  EXPECT_EQ(refusal_of("a,c,y\n1,2,0\n"),
            "test.csv: has no column 'c', which the training file has; its columns are 'a', 'b', 'y'");
  config_.data.leave_out = {"q"};
  EXPECT_EQ(refusal_of("a,b,y\n1,2,0\n"),
            "train.csv: has no column 'q', which data.leave_out names; its columns are 'a', 'b', 'y'");
  config_.data.leave_out.clear();
  config_.data.class_names = {"no", "yes"};
  EXPECT_EQ(refusal_of("a,b,y\n1,2,maybe\n"),
            "train.csv:2: column 'y': expected one of data.class_names, 'no', 'yes', found 'maybe'");
}

// Real tables often have several columns of text. One message must name all these columns.
TEST_F(Csv, AllNonNumericColumnsAreNamed) {
  EXPECT_EQ(
      refusal_of("a,sex,class,y\n1,male,3,0\n2,female,first,0\n"),
      "train.csv:2: column 'sex': expected a number, found 'male'. In total 2 columns of " + (folder_ / "train.csv").string() +
          " have values that are not numbers: 'sex', 'class'. Add them to data.leave_out, or convert them to numbers" + kTable);
  EXPECT_TRUE(
      refusal_of("a,b,y\nx,x,0\n1,2\n").starts_with("train.csv:2: column 'a': expected a number, found 'x'. In total 2"));
}

TEST_F(Csv, AColumnWithoutANameIsReportedAndCanBeLeftOut) {
  write("train.csv", ",b,y\n0,2,0\n1,3,1\n");
  EXPECT_EQ(notes_on_csv(config_.data),
            std::vector<std::string>{(folder_ / "train.csv").string() +
                                     ": column 1 without a name is an input of the model. If it is an index that pandas wrote, "
                                     "add \"\" to data.leave_out"});
  write("test.csv", ",b,y\n0,2,0\n");
  config_.data.leave_out = {""};
  EXPECT_TRUE(notes_on_csv(config_.data).empty());
  EXPECT_EQ(read_csv(config_).train->describe().tensors[0].sizes, std::vector<std::int64_t>{1});
  config_.data.leave_out.clear();
  write("train.csv", "Unnamed: 0,b,y\n0,2,0\n");
  EXPECT_EQ(notes_on_csv(config_.data).size(), 1U);
  write("train.csv", "Unnamed: x,b,y\n0,2,0\n");
  EXPECT_TRUE(notes_on_csv(config_.data).empty());
}

// Regression: an earlier version compared each name with all other names, so a file with 40,000 columns took half a minute.
TEST_F(Csv, WideTablesAreReadInLinearTime) {
  std::string header, row;
  for (int i = 0; i < 200'000; ++i) {
    header += "c" + std::to_string(i) + ",";
    row += "1,";
  }
  write("train.csv", header + "y\n" + row + "0\n");
  write("test.csv", header + "y\n" + row + "0\n");
  EXPECT_EQ(read_csv(config_).test->describe().tensors[0].sizes, std::vector<std::int64_t>{200'000});
}

TEST_F(Csv, LimitsAreNamedInShortMessages) {
  EXPECT_EQ(refusal_of(std::string((1 << 20) + 1, 'a')),
            "train.csv:1: a field has more than 1048576 bytes; expected fields separated by commas and newlines");
  EXPECT_EQ(refusal_of("\"" + std::string((1 << 20) + 1, 'a') + "\"\n"),
            "train.csv:1: a field has more than 1048576 bytes; expected fields separated by commas and newlines");
  EXPECT_EQ(refusal_of(std::string(1 << 20, ',')), "train.csv: has 1048577 columns; a table has at most 1048576");
  const std::string name(1000, 'n');
  for (const std::string& text : {name + ",b\n", name + "," + name + ",y\n", "a,y\n" + name + ",0\n", "a,y\n0," + name + "\n",
                                  "a,y\n\"" + name + "\"x,0\n", name + ",y\nx,0\n"}) {
    EXPECT_LT(refusal_of(text).size(), 500U) << refusal_of(text);
  }
}

TEST_F(Csv, TheNumberOfSamplesCanBeLimited) {
  const std::string text = "a,b,y\n1,2,0\n3,4,1\n5,wrong,2\n";
  config_.data.train_samples = 2;
  EXPECT_EQ(refusal_of(text), "");
  EXPECT_EQ(read_csv(config_).train->size(), 2);
  config_.data.train_samples = 4;
  EXPECT_NE(refusal_of("a,b,y\n1,2,0\n").find("data.train_samples is 4, but '"), std::string::npos);
}

TEST_F(Csv, OtherNumbersHaveAnotherFingerprint) {
  write("train.csv", "a,b,y\n1,2,0\n");
  const std::string before = read_csv(config_).train->fingerprint();
  EXPECT_EQ(read_csv(config_).train->fingerprint(), before);
  write("train.csv", "a,b,y\n1,2,1\n");
  EXPECT_NE(read_csv(config_).train->fingerprint(), before);
  write("train.csv", "a,b,y\n1,3,0\n");
  EXPECT_NE(read_csv(config_).train->fingerprint(), before);
}

}  // namespace
}  // namespace ddprun::trainer
