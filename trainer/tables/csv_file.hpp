// CSV files as tables: the header names the columns, one of them is to be predicted, all others are numbers to predict it from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/tables/table.hpp"

namespace ddprun::trainer {

// What a model is given of each line, from the header of the training file. Throws UsageError: the file is missing, a column
// comes twice, data.target or a column of data.leave_out is not among them (lists them), nothing is left to predict from.
Description describe_csv(const DataConfig& config);

// Lines for the user about columns that are probably not meant as inputs: one without a name, as pandas writes its index.
// Throws as describe_csv().
std::vector<std::string> notes_on_csv(const DataConfig& config);

// Both files. The test file needs the same columns, in any order. With data.standardize each column has the mean of the samples
// that are trained on taken from it and is divided by their standard deviation (of the population; computed in double, one
// sample after the other), where that is not 0. Throws UsageError as describe_csv(); a line of another number of fields, a
// field that is no number or no class: file, line, column, what was expected and what was found, and the names of all columns
// that hold something else than numbers; more than 2^20 columns, 2^32 lines of data, or 2^20 bytes in a field. Messages quote
// at most 100 bytes of a field.
Sources read_csv(const TrainConfig& config);

}  // namespace ddprun::trainer
