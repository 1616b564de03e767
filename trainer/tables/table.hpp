// Samples that are rows of numbers, each with what is to be predicted of it, as a Source. Its batches are {inputs float32 [n,
// ...], targets: classes int64 [n] or numbers float32 [n, k]}, each sample of weight 1. Nothing about them is random.
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

// What a row looks like.
Description describe_row(std::vector<std::int64_t> inputs, DataConfig::Predict predict, std::int64_t numbers = 1);

// How many rows to use of `found`: `asked`, or all where that is 0. Throws UsageError where there are fewer; `key` names what
// asked, `file` where they are.
std::int64_t rows_to_use(std::int64_t asked, std::int64_t found, const char* key, const std::string& file);

}  // namespace ddprun::trainer
