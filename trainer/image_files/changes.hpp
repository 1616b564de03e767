// Transforms a decoded image for the model: crop, mirror, normalization and random erasing. The result depends only on the
// image, the config and (seed, epoch, sample).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "common/config/train_config.hpp"
#include "trainer/data/pixels.hpp"
#include "trainer/data/source.hpp"
#include "trainer/image_files/decode.hpp"

namespace ddprun::trainer {

// One normalization table for each colour channel.
using ColourTables = std::array<PixelTable, PixelRows::kColours>;

// Returns the tables for data.mean and data.std. If these keys are not set, uses the ImageNet values in torchvision's
// documentation.
ColourTables colour_tables(const DataConfig& config);

// The rectangle within the crop whose values are set to 0. If `rows` is 0, nothing is erased.
struct Erased {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// A transformation of an image. `top` and `left` are the position of the crop in the image. If a position is negative, the crop
// starts in the padding.
struct ImageChange {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool mirror = false;
  Erased erased{};
};

// Returns the transformation of a sample. If `draws` is nullopt, the transformation only crops the centre, as torchvision's
// CenterCrop does. Otherwise the transformation is random. The random numbers come from Philox 4x32-10 with the seed as key,
// the sample as subsequence and the epoch as offset. They determine, in this order: top, left, mirror, and whether to erase.
// For the erased rectangle, at most ten attempts then generate area, proportion, top and left, by torchvision's rule.
ImageChange draw_change(const DataConfig& config, std::int64_t height, std::int64_t width, std::int64_t sample,
                        const std::optional<Draws>& draws);

// Writes the transformed image to `out`, as float32 [3, image_size, image_size]. Padding is black.
void write_changed(const PixelRows& image, const ImageChange& change, std::int64_t image_size, const ColourTables& tables,
                   float* out);

}  // namespace ddprun::trainer
