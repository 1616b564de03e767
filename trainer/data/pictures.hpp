// Labelled images as a Source: a Dataset's uint8 pixels, cropped, mirrored and normalised. A batch is {images float32 [n,
// channels, height, width], labels int64 [n]}. Each sample has weight 1.
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
  kPinnedBytes,  // uint8 as on disk, after crop and mirror, in pinned memory: a quarter of the bytes to copy. finish_on()
                 // normalises them on the GPU
};

// The form that suits the device.
Pictures pictures_for(c10::Device device);

// With draws, samples are augmented as the config says.
std::shared_ptr<const Source> picture_source(Dataset data, Normalization normalization, AugmentConfig augment = {},
                                             Pictures pictures = Pictures::kNormalised);

// Describes the training images from their file's header alone: the model can be made while read_pictures still decodes. Throws
// UsageError.
Description describe_pictures(const DataConfig& config);

// Reads both splits in parallel. Throws the errors of load_data_sets.
Sources read_pictures(const DataConfig& config, c10::Device device, const InflatedFiles& shared = {});

}  // namespace ddprun::trainer
