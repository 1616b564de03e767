// Tables and arrays as data.type says: what a worker's life calls.
#pragma once

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// Of a training sample, from headers alone. For data.type "csv" and "arrays"; throws as describe_csv() and describe_arrays().
Description describe_table(const DataConfig& config);

// Both splits; throws as read_csv() and read_arrays().
Sources read_tables(const TrainConfig& config);

}  // namespace ddprun::trainer
