// Chooses the kind of one column from its statistics, by the rules in make_plan.hpp. Pure.
#pragma once

#include <string>

#include "common/config/train_config.hpp"
#include "common/tables/column_plan.hpp"
#include "common/tables/column_scan.hpp"

namespace ddprun {

struct ChosenColumn {
  ColumnPlan column;
  std::string
      problem{};  // the cell, the reason and the remedy, if the column cannot be interpreted; the column is then left out
};

ChosenColumn choose_kind(const std::string& name, const ColumnScan& scan, const DataConfig& data);

// True for the names of an index column: empty, as pandas and R write it, or "Unnamed: 0", as pandas writes it after reading
// such a file.
bool is_index_name(const std::string& name);

}  // namespace ddprun
