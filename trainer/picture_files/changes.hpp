// Transforms a decoded image for the model: crop, mirror, normalisation, an erased rectangle. The result depends only on the
// image, the config and (seed, epoch, sample).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "common/config/train_config.hpp"
#include "trainer/data/pixels.hpp"
#include "trainer/data/source.hpp"
#include "trainer/picture_files/decode.hpp"

namespace ddprun::trainer {

// One table for each colour.
using ColourTables = std::array<PixelTable, PixelRows::kColours>;

// From data.mean and data.std, or from the values for ImageNet in torchvision's documentation.
ColourTables colour_tables(const DataConfig& config);

// Rectangle of the crop that is set to 0; none if `rows` is 0.
struct Erased {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// The crop's position in the image. A negative position is in the padding.
struct PictureChange {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool mirror = false;
  Erased erased{};
};

// Without draws the crop is centred as in torchvision's CenterCrop, and nothing else changes. With draws, the numbers come from
// Philox 4x32-10 with the seed as key, the sample as subsequence and the epoch as offset. Their order is top, left, mirror,
// whether to erase. Then at most ten tries follow for area, proportion, top and left of the erased rectangle, by torchvision's
// rule.
PictureChange draw_change(const DataConfig& config, std::int64_t height, std::int64_t width, std::int64_t sample,
                          const std::optional<Draws>& draws);

// Writes float32 [3, image_size, image_size] to `out`. Padding is black.
void write_changed(const PixelRows& picture, const PictureChange& change, std::int64_t image_size, const ColourTables& tables,
                   float* out);

}  // namespace ddprun::trainer
