// A data set in memory: images as on disk (uint8) and their labels, from IDX files of the MNIST family or from CIFAR. The data
// does not change after loading, so several threads may read it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/config/train_config.hpp"
#include "trainer/data/inflated_files.hpp"

namespace ddprun::trainer {

struct Dataset {
  at::Tensor images;  // uint8 [n, channels, height, width]; contiguous
  at::Tensor labels;  // int64 [n], each in 0..classes-1
  std::int64_t size() const { return labels.size(0); }
};

// Normalizes pixels that are already scaled to 0..1: (x - mean) / std.
struct Normalization {
  double mean = 0;
  double std = 1;
};

enum class Split { kTrain, kTest };

// Loads the images in the format that data.type names. Throws the errors of load_idx() and read_cifar() (cifar.hpp).
Dataset load_images(const DataConfig& config, Split split, const InflatedFiles& shared = {});

// Reads the split's files from data.dir. If a file does not exist, reads the file with the suffix .gz instead. Keeps only the
// first samples; data.train_samples or data.test_samples is their number. Throws UsageError if a file is missing (the message
// has both paths), is not an IDX file of the right type (both magic numbers), or is truncated or too long (both lengths). Also
// throws UsageError if the numbers of images and labels differ, or if a label is out of range (the message names the sample).
Dataset load_idx(const DataConfig& config, Split split, const InflatedFiles& shared = {});

struct ImageSize {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// Returns the size of the training images. Reads only the header of their file, so that the model can be created while
// load_images() still decodes. Throws UsageError.
ImageSize image_size_of(const DataConfig& config);

// Returns the mean and standard deviation in the config. If the config has none, computes the exact values over all pixels.
// The computation uses integer sums, so the result is the same on every machine.
Normalization normalization_of(const DataConfig& config, const Dataset& train);

// The data for training and for evaluation.
struct DataSets {
  Dataset train;
  Dataset test;
  Normalization normalization;
};

// Reads both splits in parallel. Throws the errors of load_images and normalization_of.
DataSets load_data_sets(const DataConfig& config, const InflatedFiles& shared = {});

}  // namespace ddprun::trainer
