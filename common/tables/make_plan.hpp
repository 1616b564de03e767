// Makes the column plan of a table: scans the training rows once, and chooses the kind of each column by the rules below. A
// user overrides the rules for single columns with data.leave_out, as_number, as_one_hot and as_embedding. The code is pure:
// the caller passes the file's content.
//
// The first rule that applies decides. Missing values do not count.
//   1. The column is listed in one of these four keys.
//   2. The column has no name, or the name "Unnamed: 0": an index that pandas or R wrote. The column is left out.
//   3. The column has no values, or only one distinct value and no missing values. The column is left out.
//   4. All values are numbers, truth values, or dates. The column is interpreted as this kind.
//   5. A value has a decimal comma or a unit, or is a date with an unknown order of day and month. Or at least 90 % of the
//      values, but not all, are numbers or dates. This is a problem that the user must solve.
//   6. The values are text. The column is left out if it has more than 10 values and more than half of them are distinct,
//      like names and identifiers. It is also left out if it has more than 10,000 distinct values. With up to 32 distinct
//      values it becomes one-hot, and with more values an embedding.
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

// Returns the error message. It contains all problems of `file`, and how each column was interpreted.
std::string problems_text(const PlanResult& result, const std::string& file);

}  // namespace ddprun
