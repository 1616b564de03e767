// The column plan of a table: how each column is interpreted, with all statistics that are needed to encode a row. The plan is
// made once, from the rows that are used for training (make_plan.hpp), and is stored in columns.json of the run directory.
// Evaluations, predictions and resumed runs use the stored plan, so that the same cell always becomes the same input. The
// types are plain values.
//
// The inputs of a model are float32. The plan's columns become inputs in their order, except that the codes of embedded columns
// come last:
//
//   number, truth   (value - mean) / deviation; a missing value becomes the median, or for truth the more frequent value
//   date            the day number, standardized; the sine and cosine of the day of the year; seven inputs for the weekday
//   one_hot         one input for each category, 1 or 0; one more for missing values
//   embedding       one code, from which the model looks up a vector: 0 for an unknown text, then the categories, and last the
//                   code for a missing value
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
  std::string reason{};  // why the column was left out, for users
  double mean = 0;       // used for the kinds number, truth and date, like the next two members
  double variance = 0;   // if 0, the values are not divided by the deviation
  double median = 0;     // replaces a missing value
  // true if the training rows have missing values; the column then has an input for them
  bool has_missing = false;
  bool missing_if_invalid = false;        // for kind number: true if text counts as a missing value (data.as_number)
  std::vector<std::string> categories{};  // for kinds one_hot and embedding: the categories, sorted
  std::int64_t missing = 0;               // number of missing values in the training rows
  std::int64_t different = 0;             // number of distinct texts in these rows; -1: too many to count
  bool operator==(const ColumnPlan&) const = default;
};

struct TargetPlan {
  std::string name;
  bool is_class = false;
  // mean of the target over the training rows; this and the next member are used only if the target is a number
  double mean = 0;
  double variance = 1;                 // above 0
  std::vector<std::string> classes{};  // names of the classes, in the order of their numbers
  std::int64_t most_frequent = 0;      // number of the most frequent class of the training rows
  bool operator==(const TargetPlan&) const = default;
};

struct TablePlan {
  std::vector<ColumnPlan> columns{};  // all columns except the target, in the order of the training file
  TargetPlan target{};
  std::vector<std::string> missing_values{};
  std::int64_t rows = 0;  // number of training rows
  bool operator==(const TablePlan&) const = default;
};

inline constexpr std::int64_t kWeekdays = 7;
inline constexpr std::int64_t kInputsOfDate = 3 + kWeekdays;  // the day number, the sine and cosine, and the weekdays

// Returns the number of inputs of the column. The code of an embedded column does not count.
std::int64_t plain_inputs(const ColumnPlan& column);
// Returns the number of rows of the embedding: one for unknown texts, one for each category, and one for "missing" if the
// column has missing values.
std::int64_t embedded_categories(const ColumnPlan& column);
// Returns the width of an embedding: the square root of the number of categories, rounded up, at most 32.
std::int64_t embedding_width(std::int64_t categories);
// Returns how many numbers the first layer of the model receives for this column.
std::int64_t resulting_inputs(const ColumnPlan& column);

struct PlanWidth {
  std::int64_t plain = 0;  // number of plain inputs, which precede the codes
  std::int64_t codes = 0;  // embedded columns
  std::int64_t all() const { return plain + codes; }
};
PlanWidth width_of(const TablePlan& plan);

}  // namespace ddprun
