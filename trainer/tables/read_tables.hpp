// Reads tables and arrays for the data.type of the config. Called by trainer/life.
#pragma once

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// Describes a training sample from headers alone, for data.type "csv" and "arrays". Throws the errors of describe_csv() and
// describe_arrays().
Description describe_table(const DataConfig& config);

// Reads both splits. Throws the errors of read_csv() and read_arrays().
Sources read_tables(const TrainConfig& config);

}  // namespace ddprun::trainer
