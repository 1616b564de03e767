// Reads tables for data.type "table": CSV files with text, truth values, dates and missing values. The column plan
// (common/tables) determines the inputs. data.type "csv" is the older reader for columns of numbers.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "common/tables/column_plan.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// Describes the inputs and targets of a row, with the column plan. Reads the training file, unless data.columns_file has the
// plan of an earlier invocation. Throws the errors of read_table().
Description describe_table(const TrainConfig& config);

// Describes a row of a table with this plan, without reading a file.
Description describe_plan(std::shared_ptr<const TablePlan> plan);

// Reads the training rows and the test rows. The test rows are the rows of data.test_table. If this key is not set, they are a
// part of the training file (data.test_fraction). Numeric targets are in the unit of the table. Sources::plan has the column
// plan, and Sources::notes describes the columns.
//
// All statistics come from the training rows, without samples that are held out for validation. They are computed in double, in
// the order of the rows, so they are the same on each rank. If data.columns_file exists, its plan is used instead.
//
// Throws UsageError with all problems of a file: cells that do not fit their columns, rows with a wrong number of cells,
// columns that cannot be interpreted. The message also has the interpretation of each column.
Sources read_table(const TrainConfig& config);

}  // namespace ddprun::trainer
