// Makes the column plan of a table: scans the training rows once, and chooses the kind of each column by the rules below. A
// user overrides the rules for single columns with data.leave_out, as_number, as_one_hot and as_embedding. The code is pure:
// the caller passes the file's content.
//
// The first rule that applies decides. Missing values do not count.
//   1. The column is in one of these four keys.
//   2. The column has no name, or the name "Unnamed: 0": an index that pandas or R wrote. The column is left out.
//   3. The column has no values, or only one different value and no missing value. The column is left out.
//   4. All values are numbers, truth values, or dates.
//   5. A value has a decimal comma, a unit, or is a date with an unknown order of day and month, or at least 90 % of the values
//      but not all are numbers or dates: a problem, which the user must solve.
//   6. Text. Left out if more than half of the values are different (more than 10 values), as in names and identifiers, or if
//      there are more than 10,000 different values. One-hot with up to 32 different values, else an embedding.
//
// A table often has several problems. A user should not have to start a run once for each problem. So the scan continues after
// a problem. One message then lists all problems and the kind of each column.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/train_config.hpp"
#include "common/tables/column_plan.hpp"

namespace ddprun {

inline constexpr std::int64_t kMaxOneHot = 32;
inline constexpr std::int64_t kMaxClasses = 1000;

struct PlanResult {
  TablePlan plan;
  std::vector<std::string> problems{};  // one line each; if there are any problems, the plan is not usable
  std::vector<std::string> notes{};     // one line each, such as the number of rows without a target
};

// Scans the training rows in `text`, the content of `file`. If `used` is not empty, it selects the rows for the statistics.
// Its argument is the number of a training row, counted from 0, and it returns false for samples that are held out for
// validation. Throws UsageError for the errors of TableRows, after which the columns are unknown. All other errors are
// returned as problems in the result.
PlanResult make_plan(std::string_view text, const std::string& file, const TrainConfig& config,
                     const std::function<bool(std::int64_t)>& used = {});

// Returns the error message with all problems of `file` and the interpretation of its columns.
std::string problems_text(const PlanResult& result, const std::string& file);

}  // namespace ddprun
