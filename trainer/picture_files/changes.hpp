// What is done to a decoded picture before a model gets it: crop, mirror, normalisation, a rectangle erased. Everything is a
// function of the picture, the config and (seed, epoch, sample).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "common/config/train_config.hpp"
#include "trainer/data/pixels.hpp"
#include "trainer/data/source.hpp"
#include "trainer/picture_files/decode.hpp"

namespace ddprun::trainer {

// For each colour.
using ColourTables = std::array<PixelTable, PixelRows::kColours>;

// By data.mean and data.std, or by ImageNet's, which torchvision's pages give.
ColourTables colour_tables(const DataConfig& config);

// A part of the crop that is set to 0; no rows: none.
struct Erased {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// The crop's place in the picture, which may begin in the padding around it, below 0.
struct PictureChange {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool mirror = false;
  Erased erased{};
};

// Without draws the crop is in the middle, where torchvision's CenterCrop has it, and nothing else happens. With draws: Philox
// 4x32-10 with the seed as key, the sample as subsequence and the epoch as offset gives top, left, mirror, whether to erase,
// and then ten times at most area, proportion, top and left of what is erased, by torchvision's rule.
PictureChange draw_change(const DataConfig& config, std::int64_t height, std::int64_t width, std::int64_t sample,
                          const std::optional<Draws>& draws);

// Writes float32 [3, image_size, image_size] to `out`. What lies outside the picture is black.
void write_changed(const PixelRows& picture, const PictureChange& change, std::int64_t image_size, const ColourTables& tables,
                   float* out);

}  // namespace ddprun::trainer
