// The column plan as a table for users: one line for each column with its name, its interpretation, its values, the number of
// missing values, and the number of resulting inputs. `ddprun validate` prints it, and rank 0 does at the first start. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "common/tables/column_plan.hpp"

namespace ddprun {

// Lines end with '\n', and each starts with two spaces. With more than `max_columns` columns, the text ends with the number of
// columns that are not shown.
std::string plan_text(const TablePlan& plan, std::size_t max_columns = 1000);

// The name of a kind, such as "number" or "one-hot".
const char* kind_name(ColumnPlan::Kind kind);

}  // namespace ddprun
