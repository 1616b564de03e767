// The column plan of a table: how each column is interpreted, with all statistics that are needed to encode a row. It is made
// once, from the rows that are used for training (make_plan.hpp), and stored in columns.json of the run directory. Evaluations,
// predictions and resumed runs use the stored plan, so that the same cell always becomes the same input. Plain values.
//
// The inputs of a model are float32. The plan's columns become inputs in their order, except that the codes of embedded columns
// come last:
//
//   number, truth   (value - mean) / deviation; a missing value becomes the median, or for truth the more frequent value
//   date            the day number, standardized; the sine and cosine of the place in the year; seven inputs for the weekday
//   one_hot         one input for each category, 1 or 0; one more for missing values
//   embedding       one code, from which the model looks up a vector: 0 for an unknown text, then the categories, then
//   "missing"
//
// A column of the first two kinds that has missing values in the training rows gets one more input: 1 if the value is missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun {

struct ColumnPlan {
  enum class Kind { kNumber, kTruth, kDate, kOneHot, kEmbedding, kLeftOut };
  std::string name;
  Kind kind = Kind::kNumber;
  std::string reason{};                   // why the column was left out, for users
  double mean = 0;                        // number, truth, date; as the next two
  double variance = 0;                    // 0: the values are not divided
  double median = 0;                      // replaces a missing value
  bool has_missing = false;               // the training rows have missing values, so the column has an input for them
  bool missing_if_invalid = false;        // number: text counts as missing (data.as_number)
  std::vector<std::string> categories{};  // one_hot, embedding: sorted
  std::int64_t missing = 0;               // number of missing values in the training rows
  std::int64_t different = 0;             // number of different texts in these rows; -1: too many to count
  bool operator==(const ColumnPlan&) const = default;
};

struct TargetPlan {
  std::string name;
  bool is_class = false;
  double mean = 0;                     // mean of a number, like the next member
  double variance = 1;                 // above 0
  std::vector<std::string> classes{};  // names of the classes, in the order of their numbers
  std::int64_t most_frequent = 0;      // number of the most frequent class of the training rows
  bool operator==(const TargetPlan&) const = default;
};

struct TablePlan {
  std::vector<ColumnPlan> columns{};  // in the order of the training file, without the target
  TargetPlan target{};
  std::vector<std::string> missing_values{};
  std::int64_t rows = 0;  // number of training rows
  bool operator==(const TablePlan&) const = default;
};

inline constexpr std::int64_t kWeekdays = 7;
inline constexpr std::int64_t kInputsOfDate = 3 + kWeekdays;  // day, sine, cosine, weekdays

// Number of inputs of the column, without the code of an embedded column.
std::int64_t plain_inputs(const ColumnPlan& column);
// Number of rows of the embedding: the unknown text, the categories, and "missing" if the column has missing values.
std::int64_t embedded_categories(const ColumnPlan& column);
// Width of the embedding of that number of categories: its square root, rounded up, at most 32.
std::int64_t embedding_width(std::int64_t categories);
// Number of numbers that the first layer of the model receives for this column.
std::int64_t resulting_inputs(const ColumnPlan& column);

struct PlanWidth {
  std::int64_t plain = 0;  // inputs before the codes
  std::int64_t codes = 0;  // embedded columns
  std::int64_t all() const { return plain + codes; }
};
PlanWidth width_of(const TablePlan& plan);

}  // namespace ddprun
