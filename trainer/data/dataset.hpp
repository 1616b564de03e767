// A data set in memory: images as on disk (uint8) and their labels, from IDX files of the MNIST family or from CIFAR. Immutable
// after loading; safe to read from several threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/config/train_config.hpp"
#include "trainer/data/inflated_files.hpp"

namespace ddprun::trainer {

struct Dataset {
  at::Tensor images;  // uint8 [n, channels, height, width], contiguous
  at::Tensor labels;  // int64 [n], each in 0..classes-1
  std::int64_t size() const { return labels.size(0); }
};

// Normalises pixels, scaled to 0..1 before, as (x - mean) / std.
struct Normalization {
  double mean = 0;
  double std = 1;
};

enum class Split { kTrain, kTest };

// Loads the format that data.type names. Throws the errors of load_idx and read_cifar (cifar.hpp).
Dataset load_pictures(const DataConfig& config, Split split, const InflatedFiles& shared = {});

// Reads the split's files from data.dir: `name`, else `name.gz`. Keeps the first `data.train_samples` / `test_samples`. Throws
// UsageError: a file is missing (names both paths), is not IDX or has another type (names the magic found and expected), or is
// truncated or too long (names the bytes expected and found). Also throws it if images and labels differ in number, or a label
// is out of range (names the sample).
Dataset load_idx(const DataConfig& config, Split split, const InflatedFiles& shared = {});

struct ImageSize {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// Size of the training images, from their file's header alone: the model can be made while load_pictures still decodes. Throws
// UsageError.
ImageSize image_size_of(const DataConfig& config);

// The config's values, or the exact mean and standard deviation of all pixels. Integer sums give the same result on every
// machine.
Normalization normalization_of(const DataConfig& config, const Dataset& train);

// The data for training and for evaluation.
struct DataSets {
  Dataset train;
  Dataset test;
  Normalization normalization;
};

// Reads both splits in parallel. Throws the errors of load_pictures and normalization_of.
DataSets load_data_sets(const DataConfig& config, const InflatedFiles& shared = {});

}  // namespace ddprun::trainer
