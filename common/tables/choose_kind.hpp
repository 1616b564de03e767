// Chooses the kind of one column from its statistics, by the rules in make_plan.hpp. The code is pure: no I/O, no clock.
#pragma once

#include <string>

#include "common/config/train_config.hpp"
#include "common/tables/column_plan.hpp"
#include "common/tables/column_scan.hpp"

namespace ddprun {

struct ChosenColumn {
  ColumnPlan column;
  std::string problem{};  // for a column that cannot be interpreted: a message with the cell, the reason and the remedy
};

ChosenColumn choose_kind(const std::string& name, const ColumnScan& scan, const DataConfig& data);

// Returns true if the name is the name of an index column: an empty name, which pandas and R write, or "Unnamed: 0". pandas
// writes "Unnamed: 0" after it has read a file whose first column has an empty name.
bool is_index_name(const std::string& name);

}  // namespace ddprun
