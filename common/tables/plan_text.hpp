// The column plan as a table for users: one line for each column with its name, its interpretation, its values, the number of
// missing values, and the number of resulting inputs. `ddprun validate` and rank 0 at the first start of a run print this
// table. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <string>

#include "common/tables/column_plan.hpp"

namespace ddprun {

// Returns the table. Each line starts with two spaces and ends with '\n'. If there are more than `max_columns` columns, the
// last line is the number of columns that are not shown.
std::string plan_text(const TablePlan& plan, std::size_t max_columns = 1000);

// Returns the name of a kind, such as "number" or "one-hot".
const char* kind_name(ColumnPlan::Kind kind);

}  // namespace ddprun
