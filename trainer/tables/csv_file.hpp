// Reads CSV files as tables. The header names the columns. One column is the target. All other columns are numeric inputs,
// except the columns in data.leave_out.
#pragma once

#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/tables/table.hpp"

namespace ddprun::trainer {

// Describes the inputs and targets of a row. Reads only the header of the training file. Throws UsageError if the file is
// missing, if two columns have the same name, or if there is no input column. Also throws it if the config names a column that
// does not exist; the message then lists the columns.
Description describe_csv(const DataConfig& config);

// Returns warnings about columns that probably should not be inputs, such as the index that pandas writes as a column without a
// name. Throws the errors of describe_csv().
std::vector<std::string> notes_on_csv(const DataConfig& config);

// Reads the training file and the test file. The test file must have the same columns, in any order. With data.standardize, the
// mean of each column is subtracted, and the result is divided by the population standard deviation if that is not 0. The mean
// and the deviation are computed from the training samples, in double. Throws the errors of describe_csv(). Also throws
// UsageError for a line with a different number of fields than the header, and for a field that is not a number or not a class.
// The message has the file, the line, the column, the expected and the found value. It also names all other columns with fields
// that are not numbers. Limits are 2^20 columns, 2^32 rows and 2^20 bytes in a field. Messages quote at most 100 bytes of a
// field.
Sources read_csv(const TrainConfig& config);

}  // namespace ddprun::trainer
