// The binary version of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html): records of a label, of CIFAR-100
// a coarse and a fine one, and 32 x 32 pixels in three planes, red, green, blue. dataset.cpp calls it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "trainer/data/dataset.hpp"

namespace ddprun::trainer {

enum class Cifar { k10, k100 };

inline constexpr std::int64_t kMostCifarRecords = std::int64_t{1} << 22;  // per file: 13 GB
inline constexpr ImageSize kCifarImage{.channels = 3, .height = 32, .width = 32};

// data_batch_1.bin to data_batch_5.bin and test_batch.bin, or train.bin and test.bin with their fine labels. Throws UsageError:
// a file is missing, is not made of whole records, has more than `most_records`, or has a label out of range (names the
// record).
Dataset read_cifar(const std::filesystem::path& folder, Cifar kind, Split split, std::int64_t most_records = kMostCifarRecords);

}  // namespace ddprun::trainer
