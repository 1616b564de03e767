// A data source for a table in memory. Each row is a sample of weight 1. A batch is {inputs, targets}. Inputs are float32 [n,
// ...]. Targets are classes, int64 [n], or numbers, float32 [n, k]. There is no random augmentation.
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

// Describes a row whose inputs have the shape `inputs`. For Predict::kNumber, the target has `numbers` numbers.
Description describe_row(std::vector<std::int64_t> inputs, DataConfig::Predict predict, std::int64_t numbers = 1);

}  // namespace ddprun::trainer
