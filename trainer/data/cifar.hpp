// The binary version of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html). A record has one label in
// CIFAR-10, and a coarse and a fine label in CIFAR-100. The labels are followed by 32 x 32 pixels, as a red, a green and a
// blue plane. dataset.cpp calls this code.
#pragma once

#include <cstdint>
#include <filesystem>

#include "trainer/data/dataset.hpp"

namespace ddprun::trainer {

enum class Cifar { k10, k100 };

inline constexpr std::int64_t kMaxCifarRecords = std::int64_t{1} << 22;  // maximum number of records in a file (13 GB)
inline constexpr ImageSize kCifarImage{.channels = 3, .height = 32, .width = 32};

// Reads data_batch_1.bin to data_batch_5.bin and test_batch.bin (CIFAR-10), or train.bin and test.bin with their fine labels
// (CIFAR-100). Throws UsageError if a file is missing, ends within a record, has more than `max_records`, or has a label out of
// range (the message names the record).
Dataset read_cifar(const std::filesystem::path& folder, Cifar kind, Split split, std::int64_t max_records = kMaxCifarRecords);

}  // namespace ddprun::trainer
