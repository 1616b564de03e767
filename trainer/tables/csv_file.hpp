// CSV files as tables: the header names the columns. One column is the target, and all others are numeric inputs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/tables/table.hpp"

namespace ddprun::trainer {

// Describes a model's input for each line, from the header of the training file. Throws UsageError if the file is missing, a
// column occurs twice, data.target or a column of data.leave_out does not exist (lists the columns), or no input is left.
Description describe_csv(const DataConfig& config);

// Lines for the user about columns that are probably no inputs, such as pandas' index, a column without a name. Throws the
// errors of describe_csv().
std::vector<std::string> notes_on_csv(const DataConfig& config);

// Reads both files. The test file needs the same columns, in any order. data.standardize subtracts the mean of the training
// samples from each column and divides by their standard deviation, if that is not 0. It is the deviation of the population,
// computed in double, one sample after the other. Throws UsageError as describe_csv() does, and for a line with another number
// of fields, or a field that is not a number or not a class. The message has file, line, column, the expected and the found
// value, and the names of all columns that hold something else than numbers. Also throws it for more than 2^20 columns, 2^32
// lines of data, or 2^20 bytes in a field. Messages quote at most 100 bytes of a field.
Sources read_csv(const TrainConfig& config);

}  // namespace ddprun::trainer
