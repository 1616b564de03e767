// Implementation of read_tables.hpp.
#include "trainer/tables/read_tables.hpp"

#include "trainer/tables/array_file.hpp"
#include "trainer/tables/csv_file.hpp"

namespace ddprun::trainer {

Description describe_table(const DataConfig& config) {
  return config.type == DataConfig::Type::kCsv ? describe_csv(config) : describe_arrays(config);
}

Sources read_tables(const TrainConfig& config) {
  return config.data.type == DataConfig::Type::kCsv ? read_csv(config) : read_arrays(config.data);
}

}  // namespace ddprun::trainer
