// A data set in memory: images as they are on disk (uint8) and their labels: the IDX files of the MNIST family, or CIFAR's.
// Immutable after loading; safe to read from several threads.
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

// Pixels scaled to 0..1 are normalised as (x - mean) / std.
struct Normalization {
  double mean = 0;
  double std = 1;
};

enum class Split { kTrain, kTest };

// Whatever data.type says. Throws as load_idx and read_cifar (cifar.hpp) do.
Dataset load_pictures(const DataConfig& config, Split split, const InflatedFiles& shared = {});

// Reads the split's files from data.dir: `name` or `name.gz`, plain preferred. `data.train_samples` / `test_samples` cut it.
// Throws UsageError: file missing (names both tried paths), not IDX or of another type (names magic found and expected),
// truncated or too long (bytes expected and found), images and labels of different counts, label out of range (names the
// sample).
Dataset load_idx(const DataConfig& config, Split split, const InflatedFiles& shared = {});

struct ImageSize {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// Of the training images, from their file's header alone: a model can be made while load_pictures still decodes. Throws
// UsageError.
ImageSize image_size_of(const DataConfig& config);

// The config's values, or the exact mean and standard deviation of all pixels (by integer sums: the same on every machine).
Normalization normalization_of(const DataConfig& config, const Dataset& train);

// What a run learns from and is evaluated on.
struct DataSets {
  Dataset train;
  Dataset test;
  Normalization normalization;
};

// Reads both splits at the same time. Throws as load_pictures and normalization_of do.
DataSets load_data_sets(const DataConfig& config, const InflatedFiles& shared = {});

}  // namespace ddprun::trainer
