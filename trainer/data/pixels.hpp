// Turns raw pixels into a model's input: normalization by table, and augmentation (random crop, mirror). The loader calls this
// code. All functions are pure; the result depends on the pixels, the normalization and (seed, epoch, sample).
#pragma once

#include <array>
#include <cstdint>

#include "common/config/train_config.hpp"
#include "trainer/data/dataset.hpp"

namespace ddprun::trainer {

// Normalized value of each pixel value x: (x / 255 - mean) / std in float32, bit-identical to torchvision's ToTensor and
// Normalize.
using PixelTable = std::array<float, 256>;
PixelTable make_pixel_table(Normalization normalization);

// Augmentation of one sample: the offset of the crop within the padded image, from 0 to 2 * padding, and whether to mirror.
struct Augmentation {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool mirror = false;
};

// Draws from Philox 4x32-10 with `seed` as key, `sample` as subsequence and `epoch` as offset. The block's first three numbers
// are always top, left and mirror, even if the config uses only some of them. Offsets are scaled by multiplication (bias below
// 1e-8).
Augmentation draw_augmentation(const AugmentConfig& config, std::uint64_t seed, std::int64_t epoch, std::int64_t sample);

struct PlaneShape {
  std::int64_t channels = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t pixels() const { return channels * height * width; }
};

// out[i] = table[pixels[i]].
void normalize(const std::uint8_t* pixels, std::int64_t count, const PixelTable& table, float* out);

// Normalizes like normalize(), after crop and mirror. Padding is black (0) before normalization, as in torchvision's
// RandomCrop.
void normalize_augmented(const std::uint8_t* pixels, PlaneShape shape, const PixelTable& table, std::int64_t padding,
                         Augmentation augmentation, float* out);

// Crops and mirrors without normalization. A later normalization with the same table gives the values of normalize_augmented().
void copy_augmented(const std::uint8_t* pixels, PlaneShape shape, std::int64_t padding, Augmentation augmentation,
                    std::uint8_t* out);

}  // namespace ddprun::trainer
