// Rows of numbers with their targets, as a Source. A batch is {inputs float32 [n, ...], targets: classes int64 [n] or numbers
// float32 [n, k]}. Each sample has weight 1. Nothing is random.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

struct Table {
  at::Tensor inputs;   // float32 [n, ...], contiguous
  at::Tensor targets;  // int64 [n], or float32 [n, k], contiguous
};

std::shared_ptr<const Source> table_source(Table table);

// Describes a row.
Description describe_row(std::vector<std::int64_t> inputs, DataConfig::Predict predict, std::int64_t numbers = 1);

// Number of rows to use of `found`: `asked`, or all if that is 0. Throws UsageError if there are fewer. `key` names the config
// key, `file` the file of the rows.
std::int64_t rows_to_use(std::int64_t asked, std::int64_t found, const char* key, const std::string& file);

}  // namespace ddprun::trainer
