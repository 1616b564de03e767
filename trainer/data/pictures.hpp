// Pictures with a label each, as a Source: a Dataset's uint8 pixels, cropped and mirrored, normalised. Its batches are {images
// float32 [n, channels, height, width], labels int64 [n]}, each sample of weight 1.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/inflated_files.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

enum class Pictures {
  kNormalised,   // make() gives float32: for the CPU
  kPinnedBytes,  // uint8 as on disk, after crop and mirror, in memory that a GPU copies from by itself: a quarter of the bytes.
                 // finish_on() normalises them
};

// What is to be asked for on that device.
Pictures pictures_for(c10::Device device);

// With draws, samples are augmented as the config says.
std::shared_ptr<const Source> picture_source(Dataset data, Normalization normalization, AugmentConfig augment = {},
                                             Pictures pictures = Pictures::kNormalised);

// Of the training pictures, from their file's header alone: a model can be made while read_pictures still decodes. Throws
// UsageError.
Description describe_pictures(const DataConfig& config);

// Reads both splits at the same time. Throws as load_data_sets does.
Sources read_pictures(const DataConfig& config, c10::Device device, const InflatedFiles& shared = {});

}  // namespace ddprun::trainer
