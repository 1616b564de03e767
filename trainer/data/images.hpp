// Labelled images as a Source: a Dataset's uint8 pixels, cropped, mirrored and normalized. A batch is {images float32 [n,
// channels, height, width], labels int64 [n]}. Each sample has weight 1.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/inflated_files.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

enum class ImageForm {
  kNormalised,  // make() returns normalized float32 values; used on the CPU
  // make() returns uint8 values in pinned memory, after crop and mirror. finish_on() normalizes them on the GPU, so only a
  // quarter of the bytes is copied to the GPU.
  kPinnedBytes,
};

// Returns the form that suits the device.
ImageForm image_form_for(c10::Device device);

// If make() gets draws (the keys of random numbers), it augments the samples as `augment` requires. Only training passes
// draws.
std::shared_ptr<const Source> image_source(Dataset data, Normalization normalization, AugmentConfig augment = {},
                                           ImageForm form = ImageForm::kNormalised);

// Returns the description of the training images. Reads only their file's header, so that the model can be created while
// read_images() still decodes. Throws UsageError.
Description describe_images(const DataConfig& config);

// Reads both splits in parallel. Throws the errors of load_data_sets.
Sources read_images(const DataConfig& config, c10::Device device, const InflatedFiles& shared = {});

}  // namespace ddprun::trainer
